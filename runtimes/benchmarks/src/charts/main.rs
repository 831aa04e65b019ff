//! Draws the charts of `docs/figures`: `charts DATA FOLDER WAITS`.
//!
//! `DATA` is the file of tables that `CMAP_BENCH_DATA` named. A chart whose table is not there is left as it is. `WAITS` is what
//! `cmap replay TRACE --explain slowest:N --json` has printed.

#![allow(clippy::unwrap_used, missing_docs, reason = "a program for developers fails by panicking")]

mod incident;

use std::error::Error;
use std::fs;
use std::path::Path;

use cmap_benchmarks::report::Printed;
use plotters::prelude::*;

/// Groups of bars that lie below each other.
struct Chart {
    title: &'static str,
    unit: &'static str,
    /// What the bars of each group are.
    series: Vec<&'static str>,
    groups: Vec<(String, Vec<f64>)>,
    is_logarithmic: bool,
}

const WIDTH: u32 = 860;
const BAR: u32 = 16;
const COLOURS: [RGBColor; 3] = [RGBColor(0, 104, 74), RGBColor(160, 170, 178), RGBColor(226, 143, 60)];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(data), Some(folder), Some(explained)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("charts DATA FOLDER WAITS".into());
    };
    let tables = fs::read_to_string(data)?;
    let tables: Vec<Printed> = tables.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    incident::draw(serde_json::from_str(&fs::read_to_string(explained)?)?, &folder.join("incident.svg"))?;
    // The newest of each.
    let newest = |title: &str| tables.iter().rev().find(|table| table.title.starts_with(title));
    if let Some(table) = newest("tokio, a CPU each: operations") {
        operations(table).draw(&folder.join("operations.svg"))?;
    }
    if let Some(table) = newest("tokio, one thread: 64 tasks") {
        pools(table).draw(&folder.join("pools.svg"))?;
        waits(table).draw(&folder.join("waits.svg"))?;
    }
    Ok(())
}

fn operations(table: &Printed) -> Chart {
    let group = |row: &Vec<String>| {
        let tasks = if row[1] == "1" { "1 task".into() } else { format!("{} tasks", row[1]) };
        (format!("{}, {tasks}", row[0]), vec![number(&row[2]), number(&row[3])])
    };
    Chart {
        title: "CPU time of the client for an operation",
        unit: "µs",
        series: vec!["cmap", "official driver"],
        groups: table.rows[1..].iter().map(group).collect(),
        is_logarithmic: false,
    }
}

fn pools(table: &Printed) -> Chart {
    Chart {
        title: "64 tasks share 8 connections, one thread",
        unit: "million check-outs in a second of CPU time",
        series: vec!["check-outs"],
        groups: table.rows[1..].iter().map(|row| (row[0].clone(), vec![number(&row[1])])).collect(),
        is_logarithmic: false,
    }
}

fn waits(table: &Printed) -> Chart {
    let group = |row: &Vec<String>| (row[0].clone(), row[3].split(" / ").map(micros).collect());
    Chart {
        title: "Waits for a connection: 64 tasks share 8, one thread",
        unit: "µs, logarithmic",
        series: vec!["median", "99 %", "longest"],
        groups: table.rows[1..].iter().map(group).collect(),
        is_logarithmic: true,
    }
}

/// The number that a cell begins with.
fn number(cell: &str) -> f64 {
    cell.split_whitespace().next().unwrap().parse().unwrap()
}

/// The microseconds of `12 µs` or `1.2 ms`.
fn micros(time: &str) -> f64 {
    number(time) * if time.ends_with("ms") { 1000.0 } else { 1.0 }
}

impl Chart {
    fn draw(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let in_group = u32::try_from(self.series.len())?;
        let height = 110 + u32::try_from(self.groups.len())? * (in_group + 1) * BAR;
        let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;

        let place = |value: f64| if self.is_logarithmic { value.max(0.1).log10() } else { value };
        let values = || self.groups.iter().flat_map(|(_, values)| values.iter().copied().map(place));
        let least = if self.is_logarithmic { values().fold(0.0, f64::min) - 1.0 } else { 0.0 };
        let most = least + (values().fold(least, f64::max) - least) * 1.12;
        let rows = self.groups.len() as f64 * f64::from(in_group + 1);
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(170)
            // The first group is at the top.
            .build_cartesian_2d(least..most, rows..0.0)?;
        let label = |x: &f64| if self.is_logarithmic { shown(10_f64.powf(*x)) } else { shown(*x) };
        chart.configure_mesh().disable_y_mesh().y_labels(0).x_desc(self.unit).x_label_formatter(&label).draw()?;

        for (nth, (series, colour)) in self.series.iter().zip(COLOURS).enumerate() {
            let bars = self.groups.iter().enumerate().map(|(group, (_, values))| {
                let top = (group * (self.series.len() + 1) + nth) as f64 + 0.5;
                Rectangle::new([(least, top + 0.05), (place(values[nth]), top + 0.95)], colour.filled())
            });
            let drawn = chart.draw_series(bars)?;
            if self.series.len() > 1 {
                drawn
                    .label(*series)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            }
        }
        let font = ("sans-serif", 12).into_font();
        for (group, (name, values)) in self.groups.iter().enumerate() {
            for (nth, value) in values.iter().enumerate() {
                let top = (group * (self.series.len() + 1) + nth) as f64 + 0.5;
                let (x, y) = chart.backend_coord(&(place(*value), top + 0.2));
                area.draw(&Text::new(shown(*value), (x + 4, y), font.clone()))?;
            }
            let middle = (group * (self.series.len() + 1)) as f64 + f64::from(in_group) / 2.0 + 0.2;
            let (_, y) = chart.backend_coord(&(least, middle));
            area.draw(&Text::new(name.clone(), (14, y), font.clone()))?;
        }
        if self.series.len() > 1 {
            // Where there is no bar.
            let corner = match self.is_logarithmic {
                true => SeriesLabelPosition::UpperRight,
                false => SeriesLabelPosition::LowerRight,
            };
            chart
                .configure_series_labels()
                .position(corner)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }
        area.present()?;
        Ok(())
    }
}

/// With three digits.
fn shown(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
