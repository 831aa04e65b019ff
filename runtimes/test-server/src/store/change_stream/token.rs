//! Resume tokens: a place in the history as clients keep it, `{ _data: hex }`.
//!
//! The texts of two tokens have the order of their places: of the cluster's times first.

use bson::{RawDocument, RawDocumentBuf, Timestamp};

use crate::document::document;
use crate::store::failure::{CommandFailure, code};
use crate::store::history::{Point, Time};

/// With what MongoDB's tokens begin: the type of a timestamp.
const PREFIX: &str = "82";
/// The digits of each of the four numbers of a place.
const DIGITS: usize = 8;

/// A place in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) point: Point,
    /// Whether it is that of the document which says that a stream is invalid by the event before.
    pub(super) is_of_end: bool,
}

impl Token {
    pub(super) fn of(point: Point) -> Self {
        Self { point, is_of_end: false }
    }

    pub(super) fn of_end(point: Point) -> Self {
        Self { point, is_of_end: true }
    }

    /// Reads a token.
    pub(super) fn read(token: &RawDocument) -> Result<Self, CommandFailure> {
        let data = token.get("_data").ok().flatten().and_then(|data| data.as_str()).ok_or_else(|| {
            let message = "Bad resume token: _data of missing or of wrong type";
            CommandFailure::new(code::BAD_RESUME_TOKEN, message)
        })?;
        parse(data).ok_or_else(|| {
            CommandFailure::new(code::INVALID_RESUME_TOKEN, format!("Invalid resume token: '{data}' is malformed"))
        })
    }

    pub(super) fn to_document(self) -> RawDocumentBuf {
        let Point { time: Time(Timestamp { time, increment }), next, parts } = self.point;
        let end = u8::from(self.is_of_end);
        document! { "_data": format!("{PREFIX}{time:08X}{increment:08X}{next:08X}{parts:08X}{end:02X}") }
    }
}

fn parse(data: &str) -> Option<Token> {
    let mut rest = data.strip_prefix(PREFIX)?;
    let mut number = |digits| {
        let (first, others) = rest.split_at_checked(digits)?;
        rest = others;
        let is_plain = first.bytes().all(|digit| digit.is_ascii_hexdigit());
        u32::from_str_radix(first, 16).ok().filter(|_| is_plain)
    };
    let (time, increment) = (number(DIGITS)?, number(DIGITS)?);
    let (next, parts, end) = (number(DIGITS)?, number(DIGITS)?, number(2)?);
    let is_of_end = match end {
        0 => false,
        1 => true,
        _ => return None,
    };
    let point = Point { time: Time(Timestamp { time, increment }), next, parts };
    rest.is_empty().then_some(Token { point, is_of_end })
}
