//! Durations as a reader needs them: with three digits.

use std::time::Duration;

/// A duration in its unit.
pub(super) fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (size, unit) = match nanos {
        0.0 => return "0 s".to_owned(),
        600e9.. => (60e9, "min"),
        1e9.. => (1e9, "s"),
        1e6.. => (1e6, "ms"),
        1e3.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let value = nanos / size;
    let decimals = match value {
        _ if value < 10.0 => 2,
        _ if value < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let digits = if decimals == 0 { text.as_str() } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{digits} {unit}")
}

/// The units of durations in texts, and their seconds.
const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// The text of an error, in which durations of more than three decimals are rounded.
pub(super) fn rounded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        shown.push_str(before);
        let end =
            number.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let is_part = shown.ends_with(|character: char| character.is_alphanumeric() || "-_.".contains(character));
        match long_duration(number, after).filter(|_| !is_part) {
            Some((duration, after)) => {
                shown.push_str(&time(duration));
                rest = after;
            }
            None => {
                shown.push_str(number);
                rest = after;
            }
        }
    }
    shown + rest
}

/// The duration that a number of more than three decimals is with the unit after it, and what comes after that.
fn long_duration<'a>(number: &str, after: &'a str) -> Option<(Duration, &'a str)> {
    number.split_once('.').filter(|(_, decimals)| decimals.len() > 3)?;
    let is_end = |rest: &&str| !rest.starts_with(|character: char| character.is_alphanumeric());
    let of_unit = |(unit, seconds)| Some((seconds, after.strip_prefix(unit).filter(is_end)?));
    let (seconds, rest) = UNITS.into_iter().find_map(of_unit)?;
    let duration = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    Some((duration, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_three_digits_in_its_unit() {
        let nanos = [0, 7, 1_234, 56_789, 999_400, 12_345_678, 500_000_000, 20_502_451_475, 1_234_500_000_000];

        let expected = ["0 s", "7 ns", "1.23 µs", "56.8 µs", "999 µs", "12.3 ms", "500 ms", "20.5 s", "20.6 min"];
        assert_eq!(nanos.map(|nanos| time(Duration::from_nanos(nanos))), expected);
    }

    #[test]
    fn a_duration_in_a_text_is_rounded_and_nothing_else() {
        let text =
            "127.0.0.1:27017, after 500ms; for 20.502451475s; took 1.234567ms, v1.23456s, 3.14159 and 0.12345sec";

        let expected = "127.0.0.1:27017, after 500ms; for 20.5 s; took 1.23 ms, v1.23456s, 3.14159 and 0.12345sec";
        assert_eq!(rounded(text), expected);
    }
}
