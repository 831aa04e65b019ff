//! Documents in the making: what `bson::rawdoc!` does, without the standard library that it needs.

/// A raw document of fields whose names are literals; a value that is a document or an array is made by the same means.
macro_rules! document {
    ($($name:literal: $value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "the empty document stays as it is")]
        let mut document = bson::RawDocumentBuf::new();
        $(document.append(bson::cstr!($name), $value);)*
        document
    }};
}

pub(super) use document;

use bson::RawArrayBuf;
use bson::raw::BindRawBsonRef;

/// A raw array.
pub(super) fn array<T: BindRawBsonRef>(items: impl IntoIterator<Item = T>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    items.into_iter().for_each(|item| array.push(item));
    array
}
