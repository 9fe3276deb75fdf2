//! When memory, threads or standard output can't be had.

use rustix::process::{Resource, getrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator; where it has no memory left, the process says so and ends with status 1.
///
/// The default is to abort, which looks like a crash, and dumps core. At any moment metadata on disk is old, new or
/// marked as invalid, so ending is always safe.
#[derive(Debug)]
pub struct Allocator;

impl Allocator {
    fn checked(memory: *mut u8, size: usize) -> *mut u8 {
        if memory.is_null() { out_of_memory(size) } else { memory }
    }
}

// SAFETY: every call goes on to the system's allocator with the arguments it came with, so its contract is kept where
// the caller keeps it; a null pointer is never given back, which callers must be able to bear anyway.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the whole.
        Self::checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for the whole.
        Self::checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as for the whole.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for the whole.
        Self::checked(unsafe { System.realloc(memory, layout, size) }, size)
    }
}

#[cold]
fn out_of_memory(size: usize) -> ! {
    // Nothing here may allocate.
    let mut text = [0; 20];
    let mut number = size;
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let end = b" bytes more are needed. Free some, or raise the limit (ulimit -v).\n";
    for part in [&b"out of memory: "[..], &text[at..], end] {
        // SAFETY: so many bytes are there. That nobody can hear it is no matter.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: ends the process at once, without looking at any of our memory.
    unsafe { libc::_exit(1) }
}

/// How many threads to use where nobody says it: one for each processor. Only one where address space is limited, since
/// each thread takes some 70 MiB of it, or where no other can be started.
pub fn default_threads() -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let limited = getrlimit(Resource::As).current.is_some();
    let started = || std::thread::Builder::new().spawn(|| ()).is_ok_and(|thread| thread.join().is_ok());
    if all == 1 || limited || !started() { 1 } else { all }
}

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the process was started without a standard output. Rust's runtime opens /dev/null in its place, so that
/// writing to it does not fail.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Looks before Rust's runtime does.
extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes no argument and changes nothing; a number that is no open file gives an error.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
}

// SAFETY: the C runtime calls what this section points to once, before main, with arguments that a function of the C
// calling convention may ignore. It touches nothing but a static that needs no initialisation.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;
