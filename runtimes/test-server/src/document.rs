//! Documents in the making. Values that `bson::rawdoc!` would copy first are appended here as they are borrowed.

/// A raw document of fields whose names are literals; a value that is a document or an array is written in the same
/// way.
macro_rules! document {
    ($($name:literal: $value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "the empty document stays as it is")]
        let mut document = bson::RawDocumentBuf::new();
        $(document.append(bson::cstr!($name), $value);)*
        document
    }};
}

pub(crate) use document;

use bson::RawArrayBuf;
use bson::raw::BindRawBsonRef;

/// A raw array.
pub(crate) fn array<T: BindRawBsonRef>(items: impl IntoIterator<Item = T>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    items.into_iter().for_each(|item| array.push(item));
    array
}
