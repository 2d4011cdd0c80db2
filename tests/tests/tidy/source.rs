//! [`Source`]: a Rust file taken apart into code and comments, so that no rule trips over a text or a comment.

/// One file. `code` and `comments` have the length and the lines of the file; what belongs to the other, and the
/// inside of texts, is blank.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    pub(super) code: String,
    pub(super) comments: String,
}

/// What the next bytes begin.
enum Piece {
    Code(usize),
    Comment(usize),
    Literal(usize),
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let bytes = text.as_bytes();
        let (mut code, mut comments) = (blank(bytes), blank(bytes));
        let mut at = 0;
        while at < bytes.len() {
            let end = match piece(bytes, at) {
                Piece::Code(length) => {
                    code[at..at + length].copy_from_slice(&bytes[at..at + length]);
                    at + length
                }
                Piece::Comment(length) => {
                    comments[at..at + length].copy_from_slice(&bytes[at..at + length]);
                    at + length
                }
                Piece::Literal(length) => at + length,
            };
            at = end;
        }
        let text_of = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: text_of(code),
            comments: text_of(comments),
        }
    }

    /// A finding at a byte of the code.
    pub(super) fn finding(&self, position: usize, what: &str) -> String {
        let line = 1 + self.code[..position].matches('\n').count();
        format!("{}:{line}: {what}", self.path)
    }

    /// Where a word stands in the code, not as a part of another one.
    pub(super) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }

    /// The code without the inline test module at its end.
    pub(super) fn shipped_code(&self) -> &str {
        let end = self.code.find("#[cfg(test)]\nmod tests").unwrap_or(self.code.len());
        &self.code[..end]
    }
}

/// Where a word stands in a text, not as a part of another one.
pub(super) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back().is_some_and(inside);
        let after = text[at + word.len()..].chars().next().is_some_and(inside);
        !before && !after
    })
}

fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }).collect()
}

fn piece(bytes: &[u8], at: usize) -> Piece {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Piece::Comment(rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Piece::Comment(block_comment(rest));
    }
    let in_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if !in_word && let Some(length) = raw_text(rest) {
        return Piece::Literal(length);
    }
    match rest {
        [b'"', ..] => Piece::Literal(quoted(rest, b'"')),
        [b'\'', b'\\', ..] | [b'\'', _, b'\'', ..] => Piece::Literal(quoted(rest, b'\'')),
        // A character of several bytes; anything else after a quote is a lifetime.
        [b'\'', first, ..] if !first.is_ascii() => Piece::Literal(quoted(rest, b'\'')),
        _ => Piece::Code(1),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_text(rest: &[u8]) -> Option<usize> {
    let start = rest.strip_prefix(b"b").unwrap_or(rest).strip_prefix(b"r")?;
    let hashes = start.iter().take_while(|b| **b == b'#').count();
    start.get(hashes).filter(|b| **b == b'"')?;
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let inside = rest.len() - start.len() + hashes + 1;
    let length = rest[inside..].windows(end.len()).position(|window| window == end);
    Some(length.map_or(rest.len(), |length| inside + length + end.len()))
}

#[test]
fn texts_and_comments_are_told_from_code() {
    let text = "a /* b /* c */ d */ \"e \\\" f\" 'g' '\\'' br#\"h \" i\"# 'j: k // l\nm 'ä' \"n\no\" p";
    let source = Source::new("x.rs", text);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&source.code), "a 'j: k m p");
    assert_eq!(squeezed(&source.comments), "/* b /* c */ d */ // l");
    assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
}

#[test]
fn a_word_is_not_found_inside_another_one() {
    assert_eq!(words("unsafe_code unsafe; my_unsafe (unsafe)", "unsafe").collect::<Vec<_>>(), [12, 31]);
}
