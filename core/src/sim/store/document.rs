//! Writing documents down: what `bson::rawdoc!` does, for a crate without std.

/// A document of these fields.
macro_rules! document {
    ($($name:literal: $value:expr),+ $(,)?) => {{
        let mut document = bson::RawDocumentBuf::new();
        $(document.append(bson::cstr!($name), $value);)+
        document
    }};
}

pub(super) use document;
