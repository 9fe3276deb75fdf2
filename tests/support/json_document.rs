//! Holds what tools print as JSON against the documents that describe it.

use serde_json::Value;

/// The rows of the first table in a section of the document, without its head.
pub fn table<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = document.split(heading).nth(1).unwrap_or_else(|| panic!("no section {heading}"));
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The members of the objects that `value` is or holds, which must be those that the document lists under `heading`.
#[track_caller]
pub fn holds_what_is_documented(document: &str, heading: &str, values: &[&Value]) {
    let documented: Vec<(&str, &str)> =
        table(document, heading).iter().map(|row| (row[0].trim_matches('`'), row[1])).collect();
    let mut names: Vec<&str> = documented.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    for value in values {
        let object = value.as_object().unwrap();
        let mut printed: Vec<&str> = object.keys().map(String::as_str).collect();
        printed.sort_unstable();
        assert_eq!(printed, names, "{heading}");
        for (name, kinds) in &documented {
            let kind = match &object[*name] {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            assert!(kinds.split(" or ").any(|documented| documented == kind), "{heading} {name} is a {kind}");
        }
    }
}
