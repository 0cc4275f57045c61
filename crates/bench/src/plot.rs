//! Plots the time per pod over the number of nodes as SVG, with both axes logarithmic.

use std::fmt::Write;

use crate::report::{Run, medians};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 40.0;
const PLOT_WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 460.0;
/// Colours that colour-blind readers can tell apart. Further lines repeat them with dashes.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999933"];

/// Draws the medians of engine runs.
pub fn growth(runs: &[Run]) -> String {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for (run, _) in medians(runs) {
        let point = (run.nodes as f64, 1e6 / run.pods_per_second);
        match lines.iter_mut().find(|(name, _)| *name == run.workload) {
            Some((_, points)) => points.push(point),
            None => lines.push((run.workload.clone(), vec![point])),
        }
    }
    let points = || lines.iter().flat_map(|(_, points)| points);
    let x = Axis::over(points().map(|p| p.0), LEFT, LEFT + PLOT_WIDTH);
    let y = Axis::over(points().map(|p| p.1), TOP + PLOT_HEIGHT, TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    );
    grid(&mut svg, &x, &y);
    for (i, (name, points)) in lines.iter().enumerate() {
        line(&mut svg, i, name, points, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A logarithmic axis over whole decades.
struct Axis {
    from: i32,
    to: i32,
    begin: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, begin: f64, end: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        let decade = |value: f64| if value.is_finite() && value > 0.0 { value.log10() } else { 0.0 };
        let from = decade(least).floor() as i32;
        Axis { from, to: (decade(most).ceil() as i32).max(from + 1), begin, end }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        self.begin + share * (self.end - self.begin)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(|exponent| 10f64.powi(exponent))
    }
}

fn grid(svg: &mut String, x: &Axis, y: &Axis) {
    let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
    for value in x.decades() {
        let at = x.at(value);
        let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#dddddd\"/>");
        let _ =
            writeln!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", bottom + 18.0, count(value));
    }
    for value in y.decades() {
        let at = y.at(value);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#dddddd\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            time(value)
        );
    }
    let middle = LEFT + PLOT_WIDTH / 2.0;
    let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">nodes</text>", bottom + 40.0);
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-size=\"14\">time per pod</text>", TOP - 14.0);
}

fn line(svg: &mut String, i: usize, name: &str, points: &[(f64, f64)], x: &Axis, y: &Axis) {
    let colour = COLOURS[i % COLOURS.len()];
    let dashes = match i / COLOURS.len() {
        0 => "",
        1 => " stroke-dasharray=\"6 3\"",
        _ => " stroke-dasharray=\"2 3\"",
    };
    let path: Vec<String> = points.iter().map(|p| format!("{:.1} {:.1}", x.at(p.0), y.at(p.1))).collect();
    let _ =
        writeln!(svg, "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>", path.join("L"));
    for point in points {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
            x.at(point.0),
            y.at(point.1)
        );
    }
    let (left, at) = (LEFT + PLOT_WIDTH + 20.0, TOP + 10.0 + 20.0 * i as f64);
    let right = left + 24.0;
    let _ = writeln!(svg, "<path d=\"M{left} {at}H{right}\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>");
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{name}</text>", right + 6.0, at + 4.0);
}

fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", v / 1e6),
        v if v >= 1e3 => format!("{} k", v / 1e3),
        v => format!("{v}"),
    }
}

fn time(micros: f64) -> String {
    match micros {
        m if m < 1.0 => format!("{:.0} ns", m * 1e3),
        m if m < 1e3 => format!("{m:.0} µs"),
        m => format!("{:.0} ms", m / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latency;

    #[test]
    fn every_workload_is_a_line_and_no_point_leaves_the_picture() {
        let run = |workload: &str, nodes, pods_per_second| Run {
            workload: workload.into(),
            mode: "engine".into(),
            nodes,
            pods: 1,
            pods_per_second,
            latency_us: Latency { p50: 0.0, p99: 0.0, max: 0.0 },
            cpu_seconds: 0.0,
            peak_rss_bytes: 0,
            others: Vec::new(),
            writes: None,
        };
        let svg = growth(&[run("A", 1000, 1e6), run("A", 1_000_000, 500.0), run("B", 1000, 30.0)]);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains(">1 M<") && svg.contains(">1 µs<") && svg.contains(">100 ms<"), "{svg}");
        for at in svg.split("cx=\"").skip(1) {
            let at: f64 = at.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=LEFT + PLOT_WIDTH).contains(&at));
        }
        assert!(growth(&[]).ends_with("</svg>\n"));
    }
}
