//! The chart of an incident: callers that waited, one below the other, and what each of them waited for at a time.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::{BAR, WIDTH};

/// A part of what `cmap replay --explain slowest:N --json` prints.
#[derive(Deserialize)]
pub(crate) struct Explained {
    wait: Wait,
}

#[derive(Deserialize)]
struct Wait {
    holder: Option<String>,
    began: u64,
    ended: u64,
    intervals: Vec<Interval>,
}

/// In nanoseconds since the client was made.
#[derive(Deserialize)]
struct Interval {
    from: u64,
    to: u64,
    limit: Value,
}

/// The limits that the chart knows: their names in the file and in the legend, and their colours.
const LIMITS: [(&str, &str, RGBColor); 4] = [
    ("Selection", "no server is known", RGBColor(160, 170, 178)),
    ("MaxConnecting", "others are connecting (maxConnecting)", RGBColor(226, 143, 60)),
    ("Establishment", "its own connection is being established", RGBColor(0, 104, 74)),
    ("MaxPoolSize", "all connections are in use (maxPoolSize)", RGBColor(178, 64, 64)),
];

/// Draws the waits in the order in which they began.
pub(crate) fn draw(mut waits: Vec<Explained>, path: &Path) -> Result<(), Box<dyn Error>> {
    waits.sort_by_key(|explained| (explained.wait.began, explained.wait.ended));
    let rows = u32::try_from(waits.len())?;
    let area = SVGBackend::new(path, (WIDTH, 110 + rows * 3 * BAR / 2)).into_drawing_area();
    area.fill(&WHITE)?;
    let latest = waits.iter().map(|explained| explained.wait.ended).max().unwrap_or_default();
    let mut chart = ChartBuilder::on(&area)
        .caption("A connection storm, replayed: what each caller waited for", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        // The first wait is at the top.
        .build_cartesian_2d(0.0..millis(latest) * 1.35, f64::from(rows)..0.0)?;
    chart.configure_mesh().disable_mesh().y_labels(0).x_desc("ms since the client was made").draw()?;

    for (limit, text, colour) in LIMITS {
        let intervals = (0..).zip(&waits).flat_map(|(row, explained)| {
            let bound = explained.wait.intervals.iter().filter(move |interval| name(&interval.limit) == limit);
            bound.map(move |interval| {
                let (top, bottom) = (f64::from(row) + 0.15, f64::from(row) + 0.85);
                Rectangle::new([(millis(interval.from), top), (millis(interval.to), bottom)], colour.filled())
            })
        });
        let bars: Vec<_> = intervals.collect();
        if !bars.is_empty() {
            let drawn = chart.draw_series(bars)?;
            drawn.label(text).legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
    }
    let font = ("sans-serif", 12).into_font();
    for (row, Explained { wait }) in (0..).zip(&waits) {
        let (x, y) = chart.backend_coord(&(millis(wait.ended), f64::from(row) + 0.3));
        area.draw(&Text::new(format!("{:.0} ms", millis(wait.ended - wait.began)), (x + 4, y), font.clone()))?;
        let caller = wait.holder.as_deref().and_then(|holder| holder.split(' ').next()).unwrap_or("unnamed");
        area.draw(&Text::new(caller.to_owned(), (14, y), font.clone()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A limit is a text, or a document with one field.
fn name(limit: &Value) -> &str {
    let of_document = || limit.as_object().and_then(|fields| fields.keys().next()).map(String::as_str);
    limit.as_str().or_else(of_document).unwrap_or_default()
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
