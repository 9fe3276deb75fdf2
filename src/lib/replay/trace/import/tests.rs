//! What importers take from a recording, what they don't, and what they say.

use super::super::*;

fn options(map: &[&str]) -> ImportOptions {
    let map = map.iter().map(|text| Mapping::parse(text).unwrap()).collect();
    ImportOptions { map, ..ImportOptions::default() }
}

/// Every line is accounted for, and the trace reads back.
#[track_caller]
fn taken(text: &str, options: &ImportOptions) -> (Trace, Account) {
    let (trace, account) = read_any(text, options).unwrap();
    assert_eq!(account.lines(), text.lines().count() as u64, "{account:?}");
    assert_eq!(parse(&trace.text(), false).unwrap(), trace);
    (trace, account)
}

#[track_caller]
fn refused(text: &str, options: &ImportOptions, line: usize, what: &str) {
    let error = read_any(text, options).unwrap_err();
    assert!(error.line == line && error.what.contains(what), "{error}");
}

fn events(stream: &Stream) -> Vec<String> {
    stream.events.iter().map(|event| format!("{} {}", when(event.when), verb(&event.verb))).collect()
}

fn reasons(account: &Account) -> Vec<&str> {
    account.dropped.keys().map(String::as_str).collect()
}

#[test]
fn logs_of_fio_without_times() {
    let text = "fio version 2 iolog\r\n/d/f add\r\n/d/f open\r\n/d/f write 4096 8192\r\n/d/f sync 4096 0\r\n/d/f wait 250 0\r\n\
                /d/f trim 0 4096\r\n/d/f sync_file_range 0 0\r\n/d/f datasync 0 0\r\n\r\n/d/f frob 1 2\r\n/d/f close\r\n";
    let (trace, account) = taken(text, &options(&["f:7:8"]));
    let wanted = ["- write dev=7 off=16 len=16", "- flush dev=7", "+250 discard dev=7 off=8 len=8", "- flush dev=7"];
    assert_eq!(events(&trace.streams[0]), wanted);
    assert_eq!((trace.streams[0].depth, account.taken), (Some(8), 6));
    assert_eq!(reasons(&account).len(), 6, "{account:?}");
    let slow = ImportOptions { unit: Some(1_000_000), ..options(&["f:7"]) };
    assert_eq!(taken(text, &slow).0.streams[0].events[2].when, When::After(250_000_000));
    refused(text, &options(&[]), 4, "--map '/d/f:DEVICE'");
    let (nothing, account) = taken(text, &options(&["f:-"]));
    assert_eq!((nothing.nr_events(), account.dropped["requests of /d/f (left out)"]), (0, 4));
}

/// What two jobs with one log wrote, cut down: the second header is in the middle.
#[test]
fn logs_of_fio_with_times() {
    let text = "fio version 3 iolog\n24 f one add\n672 f one open\n675 f one read 252928 18944\n900 g:2 write 512 512\n\
                850 f one sync 252928 0\n5715 f one close\nfio version 3 iolog\n66 h add\n584 h write 2137088 80896\n\
                590 h wait 5\n";
    let (trace, account) = taken(text, &options(&["f one:1", "g:2:2:0", "h:3"]));
    let wanted = ["675 read dev=1 off=494 len=37", "850 flush dev=1", "900 write dev=2 off=1 len=1"];
    assert_eq!(events(&trace.streams[0]), wanted);
    assert_eq!(events(&trace.streams[1]), ["584 write dev=3 off=4174 len=158"]);
    let streams: Vec<_> = trace.streams.iter().map(|stream| (stream.name.as_str(), stream.depth, stream.dev)).collect();
    assert_eq!(streams, [("fio", None, None), ("fio-2", None, Some(ThinId(3)))]);
    assert!(account.noticed.keys().any(|what| what.contains("went back")), "{account:?}");
    assert_eq!(trace.header["unit"], "us");
    let lines: String = (0..100).map(|n| format!("{} f write {} 4096\n", n / 10, n * 4096)).collect();
    let (trace, _) = taken(&format!("fio version 3 iolog\n{lines}"), &options(&["*:1"]));
    assert_eq!((trace.header["unit"].as_str(), trace.streams[0].events[99].when), ("ms", When::At(9_000_000)));
}

#[test]
fn what_is_wrong_with_a_log_of_fio_is_said() {
    let map = options(&["*:1"]);
    for (line, what) in [
        ("5 f read 100 512", "whole sectors"),
        ("5 f read 512 100", "direct=1"),
        ("5 f read 0 18446744073709551616", "no number below 2^64"),
        ("5 f read 18446744073709551104 18446744073709551104", "no device has"),
        ("5 f read 0 0", "no device has"),
        ("5 f read 512", "wants numbers"),
        ("5 f read", "wants numbers"),
        ("5 f frob 512", "wanted"),
        ("5 read", "file and action"),
        ("f read 0 512", "'f' is no time"),
        ("99999999999999999999 f read 0 512", "no time"),
        ("fio version 2 iolog", "mixed"),
    ] {
        refused(&format!("fio version 3 iolog\n0 f add\n{line}\n0 f close\n"), &map, 3, what);
    }
    refused("fio version 1 iolog\n", &map, 1, "neither");
    refused("fio version 2 iolog\nf wait x\nf wait\n", &map, 3, "wants numbers");
}

#[test]
fn files_that_are_cut_short() {
    let map = options(&["*:1"]);
    let (_, account) = taken("fio version 3 iolog\n5 f read 0 512\n9 f read 5", &map);
    assert_eq!(account.dropped["the last line, which is cut short"], 1);
    let (_, account) = taken("253,4 0 1 0.5 10 Q W 8 + 8 [x]\n253,4 0 1 0.", &map);
    assert_eq!(account.dropped["lines that begin as events do and can't be read"], 1);
    assert!(account.noticed.keys().any(|what| what.contains("cut short")));
    for empty in ["", "\n\n", " "] {
        refused(empty, &map, 1, "nothing in it");
    }
}

const BLOCKS: &str = "\
253,4  0  1  0.000000000  10  Q  WS 2048 + 8 [fio]
253,4  0  2  0.000001000  10  G  WS 2048 + 8 [fio]
253,4  0  3  0.000100500  0   C  WS 2048 + 8 [0]
253,4  1  1  0.000200000  11  Q  FWFSM 4096 + 16 [fio]
253,4  1  2  0.000300000  11  Q  FN [fio]
253,4  1  3  0.000400000  11  Q  RA 0 + 8 [a b]
253,4  1  4  0.000350000  11  Q  D 8192 + 128 [fio]
253,4  1  5  0.000500000  11  Q  N 0 + 8 [fio]
253,4  1  6  0.000600000  11  C  R 64 + 8 [0]
253,4  1  7  0.000700000  0   C  FN 0 [0]
253,4  1  0  0.000700000  0   m  N cfq said + something
CPU0 (253,4):
 Reads Queued:           1,        4KiB
";

#[test]
fn block_traces() {
    let (trace, account) = taken(BLOCKS, &options(&["253,4:6"]));
    let wanted = [
        "0 write dev=6 off=2048 len=8",
        "- expect lat=100.500",
        "200 flush dev=6",
        "200 write dev=6 off=4096 len=16 flags=fua",
        "300 flush dev=6",
        "- expect lat=400",
        "350 discard dev=6 off=8192 len=128",
        "400 read dev=6 off=0 len=8",
    ];
    assert_eq!(events(&trace.streams[0]), wanted);
    let wanted = [
        "action G (not asked for)",
        "action m (not asked for)",
        "completions without a request",
        "flags N (neither read, write, discard nor flush)",
        "lines that are no events",
    ];
    assert_eq!((reasons(&account), account.taken), (wanted.to_vec(), 7));
    assert_eq!(account.noticed["requests without a completion"], 3);
    assert_eq!(account.noticed["times that went back (put in order)"], 1);
    let by_process = ImportOptions { by_process: true, ..options(&["253,4:6"]) };
    assert_eq!(taken(BLOCKS, &by_process).0.streams.len(), 2);
    let (trace, account) = taken(BLOCKS, &options(&["253,4:-"]));
    assert_eq!((trace.nr_events(), account.dropped["requests of 253,4 (left out)"]), (0, 6));
    // Nothing is taken, but this is the right form.
    let issued = ImportOptions { action: 'D', ..options(&[]) };
    assert_eq!(taken(BLOCKS, &issued).0.nr_events(), 0);
}

#[test]
fn merged_and_split_requests_are_complete_with_all_of_their_parts() {
    let text = "\
8,0 0 1 0.000001000 1 Q W 0 + 8 [a]
8,0 0 2 0.000002000 1 Q W 8 + 8 [a]
8,0 0 3 0.000003000 1 Q R 8 + 8 [a]
8,0 0 4 0.000004000 1 Q W 4096 + 1024 [a]
8,0 0 5 0.000010000 1 C W 0 + 16 [0]
8,0 0 6 0.000020000 1 C W 4096 + 512 [0]
8,0 0 7 0.000030000 1 C W 4608 + 512 [0]
8,0 0 8 0.000040000 1 C W 4608 + 512 [0]
";
    let (trace, account) = taken(text, &options(&["8,0:1"]));
    let expected: Vec<String> =
        events(&trace.streams[0]).into_iter().filter(|event| event.contains("expect")).collect();
    assert_eq!(expected, ["- expect lat=9", "- expect lat=8", "- expect lat=26"]);
    assert_eq!((account.taken, account.dropped["completions without a request"]), (7, 1));
    assert_eq!(account.noticed["requests without a completion"], 1);
}

/// Below a thin device lie the pool and the data device: their traces say so in remap lines.
#[test]
fn remap_lines_say_what_lies_on_what() {
    let text = "\
253,1 0 1 0.000001000 1 A WS 9000 + 8 <- (253,2) 1536
253,1 0 2 0.000002000 1 Q WS 9000 + 8 [a]
253,1 0 3 0.000003000 1 A R 128 + 8 <- (253,3) 0
253,1 0 4 0.000004000 1 Q R 128 + 8 [a]
253,1 0 5 0.000005000 1 C R 128 + 8 [0]
";
    refused(text, &options(&["253,2:1"]), 2, "it lies below 253,2 and 253,3,");
    let above = ImportOptions { action: 'A', ..options(&["253,2:1", "253,3:2:100"]) };
    let (trace, account) = taken(text, &above);
    assert_eq!(events(&trace.streams[0]), ["1 write dev=1 off=1536 len=8"]);
    assert_eq!(events(&trace.streams[1]), ["3 read dev=2 off=100 len=8", "- expect lat=2"]);
    assert_eq!(account.noticed["remap lines: 253,2 lies on 253,1"], 1);
}

#[test]
fn files_of_other_forms_are_refused() {
    let map = options(&["*:1"]);
    // blkparse -f '%D %2c %T.%t %a %S\n', a version 1 iolog, and text.
    for other in ["253,4  0 0.000000000 Q 2048\n", "1,0,4096\n0,4096,4096\n", "\nhello\n"] {
        refused(other, &map, if other.starts_with('\n') { 2 } else { 1 }, "blkparse prints without -f");
    }
    refused("thin-trace 2\n", &map, 1, "version");
    let lenient = ImportOptions { lenient: true, ..map };
    let (_, account) = taken("thin-trace 1\n\n6 w frob\n7 w commit\n", &lenient);
    assert_eq!((account.taken, reasons(&account)), (3, vec!["verb frob (not known)"]));
}

#[test]
fn logs_of_messages() {
    let text = "# what was sent\n1700000000.5 create_thin 4\n1700000001.25 start\n\
                1700000001.300000001 dmsetup message pool 0 \"create_snap 6 5\"\n1700000002.25 set_transaction_id 0 1\n\
                1700000002.5 reserve_metadata_snap\n1700000003.25 release_metadata_snap\n1700000003.0 delete 5\n";
    let (trace, account) = taken(text, &ImportOptions::default());
    let wanted = ["50000.001 snap dev=6 origin=5", "1250000 msnap", "1750000 delete dev=5", "2000000 mrelease"];
    assert_eq!(events(&trace.streams[0]), wanted);
    assert_eq!((account.taken, account.dropped["messages before the start"]), (5, 1));
    let (trace, _) = taken("250 delete 5\n", &ImportOptions::default());
    assert_eq!(events(&trace.streams[0]), ["250 delete dev=5"]);
    for (line, what) in [
        ("9 delete", "no message of a pool"),
        ("9 delete five", "'five' is no device id"),
        ("9.5 delete 5", "mixed"),
        ("x delete 5", "a time is wanted"),
        ("9 remove 5", "no message of a pool"),
        ("18446744073709551616 delete 5", "a time is wanted"),
        ("1700000000000000 delete 5", "TIME start"),
        ("9 start\n9 start", "already"),
    ] {
        let at = 1 + line.lines().count();
        refused(&format!("9 delete 4\n{line}\n"), &ImportOptions::default(), at, what);
    }
}

/// Completions of requests for one sector are found without looking at all of them.
#[test]
fn many_requests_for_one_sector_are_no_trouble() {
    let line = |n: u64, action: &str| format!("253,4 0 {n} {}.0 1 {action} W 8 + 8 [x]\n", n);
    let text: String = (0..100_000).map(|n| line(n, "Q")).chain((0..100_000).map(|n| line(n, "C"))).collect();
    let (trace, account) = taken(&text, &options(&["*:1"]));
    assert_eq!((trace.nr_events(), account.taken), (200_000, 200_000));
}
