use super::*;

const SAMPLE: &str = "thin-trace 1
H clock=us pool_block=1024 source=hand unknown=kept
S w0 mode=closed depth=8 dev=6
S d0 mode=open
0        w0 write   dev=6 off=0 len=1024   # a comment
-        w0 write   off=1024 len=1024 flags=sync,fua colour=red
+250.5   w0 flush
1000     d0 delete  dev=5 policy=batch(16)+sleep(1ms)
1000     d0 snap    dev=7 origin=6
2000000  -  mark    name=steady
-        d0 wait    name=steady
-        d0 sleep   us=3
-        d0 expect  lat=12.25
";

#[test]
fn traces_read_back() {
    let trace = parse(SAMPLE, false).unwrap();
    assert_eq!((trace.nr_events(), trace.streams.len()), (9, 3));
    assert_eq!(trace.streams[0].events[2].when, When::After(250_500));
    assert_eq!(trace.devices().into_iter().collect::<Vec<_>>(), [ThinId(5), ThinId(6)]);
    assert_eq!(parse(&trace.text(), false).unwrap(), trace);
    for (name, _) in generate::NAMES {
        let trace = generate::generate(name, 3, 128, 50).unwrap();
        assert_eq!(parse(&trace.text(), false).unwrap(), trace, "{name}");
    }
    assert!(generate::generate("s9", 1, 128, 1).is_none());
}

#[test]
fn what_is_wrong_with_a_trace_is_said() {
    let wrong =
        |line: &str| parse(&format!("{MAGIC}\nS w mode=closed depth=2 dev=1\n5 w commit\n{line}\n"), false).err();
    for (line, what) in [
        ("4 w commit", "before"),
        ("x w commit", "no time"),
        ("9.1234 w commit", "no time"),
        ("6 w frob", "no verb 'frob'"),
        ("6 w write off=1", "wants len="),
        ("6 w write off=1 len=0", "can't be"),
        ("6 w write off=18446744073709551615 len=9", "can't be"),
        ("6 w write off=a len=9", "no number"),
        ("6 x write off=1 len=9", "wants dev="),
        ("6 w delete policy=nothing", "no policy"),
        ("6 w", "wanted"),
        ("6 w write off", "key=value"),
        ("S w mode=open", "already"),
        ("S v mode=ajar", "open or closed"),
        ("H clock=ms", "clock"),
    ] {
        let error = wrong(line).unwrap_or_else(|| panic!("{line} is taken"));
        assert!(error.line == 4 && error.what.contains(what), "{line}: {error}");
    }
    assert!(parse("thin-trace 2\n", false).unwrap_err().what.contains("version"));
    assert!(parse("", false).is_err());
    assert_eq!(parse(&format!("{MAGIC}\n6 w frob\n"), true).unwrap().nr_events(), 0);
}

fn options(map: &[&str]) -> ImportOptions {
    let map = map.iter().map(|text| Mapping::parse(text).unwrap()).collect();
    ImportOptions { map, ..ImportOptions::default() }
}

#[test]
fn mappings_are_read() {
    let read = |text: &str| Mapping::parse(text).map(|m| (m.name, m.dev.map_or(-1, |dev| dev.0 as i64), m.start)).ok();
    assert_eq!(read("vdb:5"), Some(("vdb".into(), 5, 0)));
    assert_eq!(read("253,4:6:2048"), Some(("253,4".into(), 6, 2048)));
    assert_eq!(read("/a:b/c:6"), Some(("/a:b/c".into(), 6, 0)));
    assert_eq!(read("a:5:6:0"), Some(("a:5".into(), 6, 0)));
    assert_eq!(read("8,0:-"), Some(("8,0".into(), -1, 0)));
    assert_eq!([read("vdb"), read(":5"), read("vdb:x"), read(":-")], [const { None }; 4]);
}

/// Each is found by its name, not by looking at all of them: 60,000 would take minutes.
#[test]
fn many_streams_are_read_as_quickly_as_few() {
    let own: String = (0..60_000).map(|n| format!("0 s{n} commit\n")).collect();
    let trace = parse(&format!("{MAGIC}\n{own}"), false).unwrap();
    let line = |n: u64| format!("253,4 0 {n} 0.{n:09} {n} Q W {} + 8 [fio]\n", 8 * n);
    let recorded: String = (0..60_000).map(line).collect();
    let by_process = ImportOptions { by_process: true, ..options(&["*:1"]) };
    let (mut imported, _) = read_any(&recorded, &by_process).unwrap();
    assert_eq!((trace.streams.len(), imported.streams.len()), (60_000, 60_000));
    imported.merge(trace);
    assert_eq!(imported.streams.len(), 120_000);
}
