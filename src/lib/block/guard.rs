//! Survives reads of mapped blocks that the file or device cannot deliver.
//!
//! A mapped page that lies behind the end of a file that was cut, or on a sector that cannot be read, raises
//! SIGBUS at the instruction that touches it. The handler here puts a page of zeros in its place and remembers
//! the blocks, so that a reader can report them. A SIGBUS anywhere else goes where it went before.
//!
//! The handler walks a list that only grows, so it needs no lock: one small node per mapping ever made is left behind.

use crate::format::BLOCK_SIZE;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// One bit per block.
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(nr_blocks: usize) -> Self {
        Bits((0..nr_blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, block: usize) -> bool {
        self.0.get(block / 64).is_some_and(|word| word.load(Ordering::SeqCst) & (1 << (block % 64)) != 0)
    }

    /// Whether the bit was clear before.
    fn set(&self, block: usize) -> bool {
        let bit = 1 << (block % 64);
        self.0.get(block / 64).is_some_and(|word| word.fetch_or(bit, Ordering::SeqCst) & bit == 0)
    }
}

/// What is known of the blocks of one mapping.
struct Table {
    nr_blocks: usize,
    page_size: usize,
    faulted: Bits,
    lent: Bits,
    nr_late: AtomicU64,
}

/// A mapping, dead where `table` is null.
struct Region {
    start: usize,
    end: usize,
    table: AtomicPtr<Table>,
    next: *const Region,
}

static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Watches over one mapping until it is dropped, which must be before the mapping goes.
pub struct Watch {
    region: &'static Region,
}

// SAFETY: a region is only changed through its atomics; `next` leads to regions, which are never freed.
unsafe impl Sync for Region {}

impl Watch {
    /// Watches over the `nr_blocks` blocks mapped at `start`, a page boundary.
    ///
    /// # Safety
    /// The pages of these blocks are a mapping of the caller's own, readable, in which a page may be replaced by
    /// zeros at any time. It stays mapped until the value returned is dropped.
    ///
    /// # Errors
    /// Where the system refuses the signal handler.
    pub unsafe fn new(start: *const u8, nr_blocks: usize) -> std::io::Result<Watch> {
        install()?;
        let page_size = rustix::param::page_size();
        let table = Box::new(Table {
            nr_blocks,
            page_size,
            faulted: Bits::new(nr_blocks),
            lent: Bits::new(nr_blocks),
            nr_late: AtomicU64::new(0),
        });
        let start = start as usize;
        let end = start + (nr_blocks * BLOCK_SIZE).next_multiple_of(page_size);
        let table = AtomicPtr::new(Box::into_raw(table));
        let region = Box::leak(Box::new(Region { start, end, table, next: ptr::null() }));
        let mut head = REGIONS.load(Ordering::SeqCst);
        loop {
            region.next = head;
            match REGIONS.compare_exchange(head, region, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Watch { region }),
                Err(now) => head = now,
            }
        }
    }

    fn table(&self) -> &Table {
        // SAFETY: the pointer came from a box that only our `drop` frees.
        unsafe { &*self.region.table.load(Ordering::SeqCst) }
    }

    /// Whether the block could not be read; it reads as zeros.
    pub fn is_faulted(&self, block: usize) -> bool {
        self.table().faulted.get(block)
    }

    /// Notes that the block, which has just been touched, is lent out. `false` where it faulted instead.
    ///
    /// The handler sets `faulted` before it looks at `lent`, and here it is the other way round: a block that
    /// faults while it is lent is either refused here or counted there.
    pub fn lend(&self, block: usize) -> bool {
        let table = self.table();
        if !table.lent.get(block) {
            table.lent.set(block);
        }
        !table.faulted.get(block)
    }

    /// Blocks that faulted after they had been lent.
    pub fn nr_late(&self) -> u64 {
        self.table().nr_late.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let table = self.region.table.swap(ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: it came from a box, and nobody else frees it. The handler only uses it for a fault in our
        // mapping, and nobody reads that any more.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// Puts the handler in place, once per process.
fn install() -> std::io::Result<()> {
    static RESULT: OnceLock<Result<(), i32>> = OnceLock::new();
    let result = RESULT.get_or_init(|| {
        let os_error = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        // SAFETY: plain old data, for which zeros are a value.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only asks for the present action, into room for one.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) } != 0 {
            return Err(os_error());
        }
        PREVIOUS.get_or_init(|| previous);
        let mut action = previous;
        action.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for and does only what a handler may do.
        if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
            return Err(os_error());
        }
        Ok(())
    });
    result.map_err(std::io::Error::from_raw_os_error)
}

/// Only atomics and system calls from here on: it may interrupt anything.
extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo; the address is one of its fields for SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A positive code comes from a fault; kill(2) and its like have others, and no address.
    if code > 0 && cover(address) {
        return;
    }
    pass_on(signal, info, context, code);
}

/// Puts zeros under `address` if it lies in a mapping that is watched.
fn cover(address: usize) -> bool {
    let mut at: *const Region = REGIONS.load(Ordering::SeqCst);
    // SAFETY: regions are never freed.
    while let Some(region) = unsafe { at.as_ref() } {
        let table = region.table.load(Ordering::SeqCst);
        if (region.start..region.end).contains(&address) && !table.is_null() {
            // SAFETY: the mapping is being read, so its watch is there and with it the table.
            return cover_in(region, unsafe { &*table }, address);
        }
        at = region.next;
    }
    false
}

fn cover_in(region: &Region, table: &Table, address: usize) -> bool {
    let page = address & !(table.page_size - 1);
    let first = (page - region.start) / BLOCK_SIZE;
    let past = (first + table.page_size.div_ceil(BLOCK_SIZE)).min(table.nr_blocks);
    for block in first..past {
        if table.faulted.set(block) && table.lent.get(block) {
            table.nr_late.fetch_add(1, Ordering::SeqCst);
        }
    }
    // SAFETY: the page is part of a mapping whose owner allows this (see `Watch::new`). Where two threads fault on
    // one page, the second puts zeros over zeros. errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped = libc::mmap(page as *mut c_void, table.page_size, libc::PROT_READ, flags, -1, 0);
        *libc::__errno_location() = errno;
        mapped != libc::MAP_FAILED
    }
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let handler = PREVIOUS.get().map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let with_info = PREVIOUS.get().is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    if handler == libc::SIG_IGN && code <= 0 {
        return;
    }
    // SAFETY: a handler is called with the signature that its flags say it has. Otherwise the default action is
    // set, which needs a zeroed action only, and comes into force when the signal is delivered again on return.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &default, ptr::null_mut());
            libc::raise(signal);
        } else if with_info {
            let call: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(c_int) = std::mem::transmute(handler);
            call(signal);
        }
    }
}
