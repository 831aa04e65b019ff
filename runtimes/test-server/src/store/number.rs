//! Numbers of four types that are compared exactly, as one.
//!
//! An integer and a double are compared without rounding either. A decimal and a double are compared as decimals of 34
//! digits, as in the server. NaN equals itself and is less than every other number.

use std::cmp::Ordering;

use bson::{Decimal128, RawBson, RawBsonRef};

/// A number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal(Decimal),
}

/// The value of a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decimal {
    NotANumber,
    Infinite {
        negative: bool,
    },
    /// `coefficient` times ten to the power of `exponent`; the coefficient has at most 34 digits.
    Finite {
        negative: bool,
        coefficient: u128,
        exponent: i32,
    },
}

/// The first double above every 64-bit integer.
const ABOVE_INT64: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// The number of `value`.
    pub(super) fn read(value: RawBsonRef<'_>) -> Option<Self> {
        value.as_i32().map(Self::Int32).or_else(|| value.as_i64().map(Self::Int64)).or_else(|| {
            if let RawBsonRef::Decimal128(decimal) = value {
                return Some(Self::Decimal(Decimal::read(decimal)));
            }
            value.as_f64().map(Self::Double)
        })
    }

    /// Its whole part as a 64-bit integer, or the nearest one.
    pub(super) fn to_integer(self) -> Option<i64> {
        match self {
            Self::Int32(integer) => Some(integer.into()),
            Self::Int64(integer) => Some(integer),
            Self::Double(double) if double.is_nan() => None,
            #[allow(clippy::cast_possible_truncation, reason = "a cast saturates and cuts the fraction off")]
            Self::Double(double) => Some(double as i64),
            Self::Decimal(decimal) => decimal.to_integer(),
        }
    }

    /// Whether it is NaN.
    pub(super) fn is_nan(self) -> bool {
        match self {
            Self::Double(double) => double.is_nan(),
            Self::Decimal(decimal) => decimal == Decimal::NotANumber,
            Self::Int32(_) | Self::Int64(_) => false,
        }
    }

    /// Whether it is zero.
    pub(super) fn is_zero(self) -> bool {
        self.compare(Self::Int32(0)) == Ordering::Equal
    }

    /// The sum, in the type that the server gives it: a sum of integers that is too great for one type has the next.
    /// `None` if it is too great for all of them, or one of the two is a decimal.
    pub(super) fn plus(self, other: Self) -> Option<RawBson> {
        self.combined(other, i64::checked_add, |a, b| a + b)
    }

    /// The sum, as [`plus`](Self::plus) has it, and as a double if it is too great for every type of integers. `None` if one of the
    /// two is a decimal.
    pub(super) fn sum(self, other: Self) -> Option<RawBson> {
        match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => None,
            (a, b) => a.plus(b).or_else(|| Some(RawBson::Double(a.to_double() + b.to_double()))),
        }
    }

    /// The product, as [`plus`](Self::plus) has the sum.
    pub(super) fn times(self, other: Self) -> Option<RawBson> {
        self.combined(other, i64::checked_mul, |a, b| a * b)
    }

    fn combined(
        self,
        other: Self,
        integers: impl Fn(i64, i64) -> Option<i64>,
        doubles: impl Fn(f64, f64) -> f64,
    ) -> Option<RawBson> {
        match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => None,
            (Self::Int32(a), Self::Int32(b)) => {
                let sum = integers(a.into(), b.into())?;
                Some(i32::try_from(sum).map_or(RawBson::Int64(sum), RawBson::Int32))
            }
            (a, b) => match (a.whole(), b.whole()) {
                (Some(a), Some(b)) => integers(a, b).map(RawBson::Int64),
                (_, _) => Some(RawBson::Double(doubles(a.to_double(), b.to_double()))),
            },
        }
    }

    fn whole(self) -> Option<i64> {
        match self {
            Self::Int32(integer) => Some(integer.into()),
            Self::Int64(integer) => Some(integer),
            Self::Double(_) | Self::Decimal(_) => None,
        }
    }

    fn to_double(self) -> f64 {
        match self {
            Self::Int32(integer) => integer.into(),
            Self::Int64(integer) => integer as f64,
            Self::Double(double) => double,
            Self::Decimal(_) => f64::NAN,
        }
    }

    /// Which of the two is greater.
    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => compare_doubles(a, b),
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => self.to_decimal().compare(other.to_decimal()),
            (Self::Double(a), _) => other.whole().map_or(Ordering::Equal, |b| compare_whole(b, a).reverse()),
            (_, Self::Double(b)) => self.whole().map_or(Ordering::Equal, |a| compare_whole(a, b)),
            (_, _) => self.whole().cmp(&other.whole()),
        }
    }

    fn to_decimal(self) -> Decimal {
        match self {
            Self::Int32(integer) => Decimal::from_whole(integer.into()),
            Self::Int64(integer) => Decimal::from_whole(integer),
            Self::Double(double) => Decimal::from_double(double),
            Self::Decimal(decimal) => decimal,
        }
    }
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    // Values without an order have a NaN, which comes first.
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn compare_whole(whole: i64, double: f64) -> Ordering {
    if double.is_nan() || double < -ABOVE_INT64 {
        return Ordering::Greater;
    }
    if double >= ABOVE_INT64 {
        return Ordering::Less;
    }
    #[allow(clippy::cast_possible_truncation, reason = "the fraction is compared below")]
    let cut = double as i64;
    // A double's whole part is a double, so the cast back is exact.
    whole.cmp(&cut).then_with(|| compare_doubles(cut as f64, double))
}

impl Decimal {
    /// Reads the format with a binary coefficient, IEEE 754-2008.
    fn read(decimal: Decimal128) -> Self {
        const COEFFICIENT_BITS: u32 = 113;
        const EXPONENT_MASK: u128 = 0x3fff;
        const BIAS: i32 = 6176;
        const MAX_COEFFICIENT: u128 = 10_u128.pow(34) - 1;

        let bits = u128::from_le_bytes(decimal.bytes());
        let negative = bits >> 127 == 1;
        match (bits >> 122) & 0x1f {
            0x1f => return Self::NotANumber,
            0x1e => return Self::Infinite { negative },
            _ => {}
        }
        // A coefficient that begins with 0b100 would be too great; such a number is zero, as is every other too great.
        let is_large = (bits >> 125) & 3 == 3;
        let exponent = (bits >> if is_large { COEFFICIENT_BITS - 2 } else { COEFFICIENT_BITS }) & EXPONENT_MASK;
        let coefficient = bits & ((1 << COEFFICIENT_BITS) - 1);
        let coefficient = if is_large || coefficient > MAX_COEFFICIENT { 0 } else { coefficient };
        Self::Finite { negative, coefficient, exponent: i32::try_from(exponent).unwrap_or(0) - BIAS }
    }

    fn from_whole(whole: i64) -> Self {
        Self::Finite { negative: whole < 0, coefficient: whole.unsigned_abs().into(), exponent: 0 }
    }

    fn from_double(double: f64) -> Self {
        if double.is_nan() {
            return Self::NotANumber;
        }
        let negative = double.is_sign_negative();
        if double.is_infinite() {
            return Self::Infinite { negative };
        }
        // 34 digits, exactly rounded: one before the point and 33 behind it.
        let text = format!("{:.33e}", double.abs());
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = digits.bytes().filter(u8::is_ascii_digit);
        let coefficient = digits.fold(0, |value: u128, digit| value * 10 + u128::from(digit - b'0'));
        Self::Finite { negative, coefficient, exponent: exponent.parse().unwrap_or(0) - 33 }
    }

    fn to_integer(self) -> Option<i64> {
        let Self::Finite { negative, coefficient, exponent } = self else { return None };
        let power = 10_u128.checked_pow(exponent.unsigned_abs());
        let magnitude = match (exponent < 0, power) {
            (true, power) => power.map_or(0, |power| coefficient / power),
            (false, _) if coefficient == 0 => 0,
            (false, power) => power.and_then(|power| coefficient.checked_mul(power)).unwrap_or(u128::MAX),
        };
        let magnitude = i64::try_from(magnitude).unwrap_or(i64::MAX);
        Some(if negative { -magnitude } else { magnitude })
    }

    fn compare(self, other: Self) -> Ordering {
        self.class().cmp(&other.class()).then_with(|| match (self, other) {
            (
                Self::Finite { negative, coefficient: a, exponent: a_exponent },
                Self::Finite { coefficient: b, exponent: b_exponent, .. },
            ) => {
                let magnitude = compare_magnitudes((a, a_exponent), (b, b_exponent));
                if negative { magnitude.reverse() } else { magnitude }
            }
            (_, _) => Ordering::Equal,
        })
    }

    /// NaN, infinitely negative, negative, zero, positive, infinite: in this order, and within a class to compare.
    fn class(self) -> u8 {
        match self {
            Self::NotANumber => 0,
            Self::Infinite { negative: true } => 1,
            Self::Finite { coefficient: 0, .. } => 3,
            Self::Finite { negative: true, .. } => 2,
            Self::Finite { negative: false, .. } => 4,
            Self::Infinite { negative: false } => 5,
        }
    }
}

/// Compares two decimals without their signs; zero only with zero.
fn compare_magnitudes((a, a_exponent): (u128, i32), (b, b_exponent): (u128, i32)) -> Ordering {
    let order =
        |value: u128, exponent: i32| value.checked_ilog10().map(|digits| i64::from(digits) + i64::from(exponent));
    order(a, a_exponent).cmp(&order(b, b_exponent)).then_with(|| {
        // They have their first digits in the same place, so that the difference of the exponents is below 34.
        let scaled = |value: u128, by: i32| value.saturating_mul(10_u128.saturating_pow(by.unsigned_abs()));
        match a_exponent.cmp(&b_exponent) {
            Ordering::Equal => a.cmp(&b),
            Ordering::Less => a.cmp(&scaled(b, b_exponent - a_exponent)),
            Ordering::Greater => scaled(a, a_exponent - b_exponent).cmp(&b),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::read(RawBsonRef::Decimal128(text.parse().unwrap())).unwrap()
    }

    #[test]
    fn numbers_of_all_types_stand_in_one_order() {
        let ascending = [
            Number::Double(f64::NAN),
            Number::Double(f64::NEG_INFINITY),
            decimal("-1E+400"),
            Number::Double(-9.3e18),
            Number::Int64(i64::MIN),
            decimal("-1.5"),
            Number::Int32(-1),
            Number::Double(-0.5),
            Number::Int32(0),
            decimal("1E-6176"),
            Number::Double(f64::MIN_POSITIVE),
            decimal("0.1"),
            Number::Int32(1),
            Number::Int64(9_007_199_254_740_992),
            Number::Int64(9_007_199_254_740_993),
            Number::Double(9_007_199_254_740_994.0),
            Number::Int64(i64::MAX),
            Number::Double(ABOVE_INT64),
            decimal("9223372036854775808.5"),
            Number::Double(f64::INFINITY),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.compare(*b), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn one_value_is_equal_in_every_type() {
        let ones =
            [Number::Int32(1), Number::Int64(1), Number::Double(1.0), decimal("1"), decimal("1.000"), decimal("10E-1")];
        let zeros = [Number::Int32(0), Number::Double(-0.0), decimal("0"), decimal("-0E+10"), Number::Int64(0)];
        let infinite = [Number::Double(f64::INFINITY), decimal("Infinity")];
        let not = [Number::Double(f64::NAN), decimal("NaN")];
        for equal in [&ones[..], &zeros, &infinite, &not] {
            for (a, b) in equal.iter().flat_map(|a| equal.iter().map(move |b| (a, b))) {
                assert_eq!(a.compare(*b), Ordering::Equal, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn sums_grow_into_the_next_type_and_overflow_at_the_last() {
        assert_eq!(Number::Int32(1).plus(Number::Int32(2)), Some(RawBson::Int32(3)));
        assert_eq!(Number::Int32(i32::MAX).plus(Number::Int32(1)), Some(RawBson::Int64(2_147_483_648)));
        assert_eq!(Number::Int64(i64::MAX).plus(Number::Int32(1)), None);
        assert_eq!(Number::Int64(i64::MAX).sum(Number::Int32(1)), Some(RawBson::Double(ABOVE_INT64)));
        assert_eq!(Number::Int32(1).plus(Number::Double(0.5)), Some(RawBson::Double(1.5)));
        assert_eq!(Number::Int32(1 << 20).times(Number::Int32(1 << 20)), Some(RawBson::Int64(1 << 40)));
    }

    #[test]
    fn integers_are_read_from_every_type() {
        for (number, expected) in [
            (Number::Double(-2.9), Some(-2)),
            (Number::Double(1e300), Some(i64::MAX)),
            (Number::Double(f64::NAN), None),
            (decimal("12.7"), Some(12)),
            (decimal("-3E+2"), Some(-300)),
            (decimal("1E+300"), Some(i64::MAX)),
            (decimal("0E+300"), Some(0)),
            (decimal("1E-300"), Some(0)),
        ] {
            assert_eq!(number.to_integer(), expected, "{number:?}");
        }
    }
}
