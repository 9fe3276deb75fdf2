//! A source file, and the same with comments, literals and tests blanked out, so that rules see only code.
//!
//! Every byte keeps its place: an offset in one form is an offset in all.

pub struct Source {
    /// From the top of the repository.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Comments and the insides of literals blanked out, so that words in them count for nothing.
    pub code: String,
    /// `code` without what is compiled for tests only.
    pub shipped: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_literals(text);
        let is_test = path.starts_with("tests/")
            || path.starts_with("fuzz/")
            || path.ends_with("/testing.rs")
            || path.ends_with("/tests.rs");
        let shipped = if is_test { blank(&code) } else { blank_test_items(&code) };
        Source { path: path.to_string(), text: text.to_string(), code, shipped }
    }

    /// The folder of `src/lib` that it is in, or `bin`.
    pub fn layer(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("src/")?;
        match rest.strip_prefix("lib/") {
            Some(inside) => inside.split_once('/').map(|(layer, _)| layer),
            None => rest.starts_with("bin/").then_some("bin"),
        }
    }

    /// `path:line: what`.
    pub fn at(&self, offset: usize, what: &str) -> String {
        let line = self.text[..offset].matches('\n').count() + 1;
        format!("{}:{line}: {what}", self.path)
    }
}

fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Keeps every byte's place.
fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let before = if at == 0 { b' ' } else { bytes[at - 1] };
        let length = match rest {
            [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => block_comment(rest),
            [b'"', ..] => string(rest),
            [b'r', b'"' | b'#', ..] if !is_word(before) || before == b'b' => raw_string(rest),
            [b'\'', b'\\', ..] => 3 + rest[3..].iter().position(|b| *b == b'\'').unwrap_or(0),
            [b'\'', ..] => char_literal(rest),
            _ => 0,
        };
        if length == 0 {
            code.push(if rest[0].is_ascii() { rest[0] } else { b' ' });
            at += 1;
        } else {
            code.extend(rest[..length].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += length;
        }
    }
    String::from_utf8(code).unwrap()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// 0 if it is none, as with `r#type`.
fn raw_string(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = [b'"'].into_iter().chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[2 + hashes..];
    2 + hashes + body.windows(end.len()).position(|w| w == end).map_or(body.len(), |at| at + end.len())
}

/// 0 for a lifetime.
fn char_literal(rest: &[u8]) -> usize {
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let valid = match &text {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or(""),
    };
    match valid.chars().next() {
        Some(one) if rest.get(1 + one.len_utf8()) == Some(&b'\'') => 2 + one.len_utf8(),
        _ => 0,
    }
}

/// Blanks the item behind each `#[cfg(test)]`.
fn blank_test_items(code: &str) -> String {
    let mut text = code.as_bytes().to_vec();
    for (begin, _) in code.match_indices("#[cfg(test)]") {
        let mut depth = 0;
        for byte in &mut text[begin..] {
            let now = *byte;
            if now != b'\n' {
                *byte = b' ';
            }
            match now {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 && (now == b'}' || now == b';') {
                break;
            }
        }
    }
    String::from_utf8(text).unwrap()
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `word` stands on its own.
pub fn find_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let begins = *at == 0 || !is_word(bytes[*at - 1]) || !is_word(word.as_bytes()[0]);
        let end = at + word.len();
        let ends = end == bytes.len() || !is_word(bytes[end]) || !is_word(word.as_bytes()[word.len() - 1]);
        begins && ends
    })
}
