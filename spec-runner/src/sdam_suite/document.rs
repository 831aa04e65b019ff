//! From the extended JSON of test files to BSON; only the types that these files use.

use cmap_core::wire::bson::oid::ObjectId;
use cmap_core::wire::bson::raw::CString;
use cmap_core::wire::bson::{DateTime, RawArrayBuf, RawBson, RawDocumentBuf};
use serde_json::{Map, Value};

/// A document of these fields.
pub(super) fn document(fields: &Map<String, Value>) -> Result<RawDocumentBuf, String> {
    let mut document = RawDocumentBuf::new();
    for (name, value) in fields {
        let key = CString::try_from(name.clone()).map_err(|_| format!("the name {name:?} cannot be one"))?;
        document.append(key, bson(value)?);
    }
    Ok(document)
}

fn bson(value: &Value) -> Result<RawBson, String> {
    let unusable = || format!("{value} is not understood");
    Ok(match value {
        Value::Null => RawBson::Null,
        Value::Bool(value) => RawBson::Boolean(*value),
        Value::String(text) => RawBson::String(text.clone()),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => i32::try_from(integer).map_or(RawBson::Int64(integer), RawBson::Int32),
            None => RawBson::Double(number.as_f64().ok_or_else(unusable)?),
        },
        Value::Array(items) => {
            let mut array = RawArrayBuf::new();
            for item in items {
                array.push(bson(item)?);
            }
            RawBson::Array(array)
        }
        Value::Object(fields) => {
            let Some((name, text)) = fields.iter().next().filter(|(name, _)| name.starts_with('$')) else {
                return document(fields).map(RawBson::Document);
            };
            let text = text.as_str().ok_or_else(unusable)?;
            match name.as_str() {
                "$oid" => RawBson::ObjectId(ObjectId::parse_str(text).map_err(|_| unusable())?),
                "$numberLong" => RawBson::Int64(text.parse().map_err(|_| unusable())?),
                "$date" => RawBson::DateTime(DateTime::parse_rfc3339_str(text).map_err(|_| unusable())?),
                _ => return Err(unusable()),
            }
        }
    })
}
