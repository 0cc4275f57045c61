//! A simulation as one HTML file: a table, plots drawn as SVG, and nothing that has to be fetched.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::text::rows;
use super::{Sample, Simulation};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// How many colours there are; further configurations repeat them with dashes.
const COLOURS: usize = 6;

/// How many divergences the report lists.
const DIVERGENCES_SHOWN: usize = 100;

const STYLE: &str = include_str!("report.css");

/// The number of a sample; none where there is nothing to plot.
type Reading<'a> = Box<dyn Fn(&Sample) -> Option<f64> + 'a>;

/// One plot: a title, what its numbers are, and the number of a sample.
struct Plot<'a> {
    title: String,
    percent: bool,
    value: Reading<'a>,
}

/// The whole report.
pub fn report(simulation: &Simulation) -> String {
    let mut out = String::new();
    let title = format!("{} events on {} nodes", simulation.events, simulation.nodes);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Simulation: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>Simulation</h1>\n<p>{title}, from <time>{}</time> to \
         <time>{}</time></p>\n</header>\n<main>\n",
        simulation.from, simulation.to
    );
    write_table(&mut out, simulation);
    write_plots(&mut out, simulation);
    write_divergences(&mut out, simulation);
    if !simulation.notes.is_empty() {
        out.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
        for note in &simulation.notes {
            let _ = writeln!(out, "<li>{}</li>", escaped(note));
        }
        out.push_str("</ul>\n</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn write_table(out: &mut String, simulation: &Simulation) {
    out.push_str(
        "<section>\n<h2>Figures</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">measure</th>",
    );
    for (at, config) in simulation.configs.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\" class=\"number\">{}{}</th>", swatch(at), escaped(&config.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (name, of) in rows(simulation) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(&name));
        for config in &simulation.configs {
            let _ = write!(out, "<td class=\"number\">{}</td>", escaped(&of(&config.metrics)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// The line of a configuration as a small picture beside its name.
fn swatch(at: usize) -> String {
    format!(
        "<svg class=\"swatch\" viewBox=\"0 0 22 8\" width=\"22\" height=\"8\" aria-hidden=\"true\">\
         <path class=\"line c{}\" d=\"M0 4H22\"{}/></svg>",
        at % COLOURS,
        dashes(at)
    )
}

fn dashes(at: usize) -> &'static str {
    match at / COLOURS {
        0 => "",
        1 => " stroke-dasharray=\"6 3\"",
        _ => " stroke-dasharray=\"2 3\"",
    }
}

fn write_plots(out: &mut String, simulation: &Simulation) {
    let mut plots = vec![
        Plot { title: "Nodes in use".into(), percent: false, value: Box::new(|s| Some(s.nodes_in_use as f64)) },
        Plot { title: "Pods on nodes".into(), percent: false, value: Box::new(|s| Some(s.pods as f64)) },
        Plot { title: "Pods pending".into(), percent: false, value: Box::new(|s| Some(s.pending as f64)) },
    ];
    let samples = || simulation.configs.iter().flat_map(|config| &config.metrics.over_time);
    let requested: BTreeSet<&String> = samples().flat_map(|sample| sample.utilisation.keys()).collect();
    for resource in requested.into_iter().filter(|resource| *resource != "pods") {
        let value = Box::new(move |sample: &Sample| sample.utilisation.get(resource).copied());
        plots.push(Plot { title: format!("{resource} requested"), percent: true, value });
    }
    let free: BTreeSet<&String> = samples().flat_map(|sample| sample.fragmented.keys()).collect();
    for resource in free {
        let value = Box::new(move |sample: &Sample| sample.fragmented.get(resource).copied());
        plots.push(Plot { title: format!("Free {resource} that no pod of the mix can use"), percent: true, value });
    }
    out.push_str("<section>\n<h2>Over time</h2>\n<p class=\"legend\">");
    for (at, config) in simulation.configs.iter().enumerate() {
        let _ = write!(out, "<span>{}{}</span> ", swatch(at), escaped(&config.name));
    }
    out.push_str("</p>\n<div class=\"plots\">\n");
    for plot in plots {
        write_plot(out, simulation, &plot);
    }
    out.push_str("</div>\n</section>\n");
}

fn write_plot(out: &mut String, simulation: &Simulation, plot: &Plot<'_>) {
    let start = simulation.from.as_second() as f64;
    let hours = |sample: &Sample| (sample.time.as_second() as f64 - start) / 3600.0;
    let lines: Vec<Vec<(f64, f64)>> = simulation
        .configs
        .iter()
        .map(|config| {
            let samples = config.metrics.over_time.iter();
            samples.filter_map(|sample| Some((hours(sample), (plot.value)(sample)?))).collect()
        })
        .collect();
    let most = |of: fn(&(f64, f64)) -> f64| lines.iter().flatten().map(of).fold(0.0, f64::max);
    let (x_most, x_step) = axis(most(|point| point.0));
    let (y_most, y_step) =
        if plot.percent { axis(most(|point| point.1).min(1.0)) } else { axis(most(|point| point.1)) };
    let title = escaped(&plot.title);
    let ends = simulation.configs.iter().zip(&lines).filter_map(|(config, line)| {
        let mean = line.iter().map(|point| point.1).sum::<f64>() / line.len().max(1) as f64;
        line.last().map(|_| format!("{} on average {}", config.name, number(mean, plot.percent)))
    });
    let described = escaped(&ends.collect::<Vec<_>>().join("; "));
    let _ = write!(
        out,
        "<figure>\n<figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{title}: {described}\">\n"
    );
    let x_at = |x: f64| LEFT + x / x_most * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - (y / y_most).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
    for tick in ticks(y_most, y_step) {
        let at = y_at(tick);
        let _ = writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{}\"/>", WIDTH - RIGHT);
        let label = number(tick, plot.percent);
        let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, at + 4.0);
    }
    for tick in ticks(x_most, x_step) {
        let at = x_at(tick);
        let label = format!("{} h", trimmed(tick));
        let _ =
            writeln!(out, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", HEIGHT - BOTTOM + 20.0);
    }
    for (at, line) in lines.iter().enumerate() {
        let path: Vec<String> = line.iter().map(|(x, y)| format!("{:.1} {:.1}", x_at(*x), y_at(*y))).collect();
        if !path.is_empty() {
            let _ = writeln!(out, "<path class=\"line c{}\" d=\"M{}\"{}/>", at % COLOURS, path.join("L"), dashes(at));
        }
    }
    out.push_str("</svg>\n</figure>\n");
}

/// The end of an axis that begins at 0, and the distance of its ticks.
fn axis(most: f64) -> (f64, f64) {
    if most <= 0.0 || !most.is_finite() {
        return (1.0, 1.0);
    }
    let rough = most / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|by| by * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    ((most / step).ceil() * step, step)
}

fn ticks(most: f64, step: f64) -> impl Iterator<Item = f64> {
    let count = (most / step).round() as usize;
    (0..=count).map(move |at| at as f64 * step)
}

fn number(value: f64, percent: bool) -> String {
    match value {
        value if percent => format!("{} %", trimmed(value * 100.0)),
        value if value >= 1e6 => format!("{} M", trimmed(value / 1e6)),
        value if value >= 1e4 => format!("{} k", trimmed(value / 1e3)),
        value => trimmed(value),
    }
}

/// A number with at most two digits after the point, and none that say nothing.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_divergences(out: &mut String, simulation: &Simulation) {
    if simulation.configs.len() < 2 {
        return;
    }
    let _ = write!(
        out,
        "<section>\n<h2>Different nodes</h2>\n<p>{} pods went to different nodes.</p>\n",
        simulation.divergent_pods
    );
    if !simulation.divergences.is_empty() {
        out.push_str("<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">time</th><th scope=\"col\">pod</th>");
        for config in &simulation.configs {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(&config.name));
        }
        out.push_str("<th scope=\"col\">plugin</th></tr></thead>\n<tbody>\n");
        for divergence in simulation.divergences.iter().take(DIVERGENCES_SHOWN) {
            let _ = write!(out, "<tr><td>{}</td><td>{}</td>", divergence.time, escaped(&divergence.pod));
            for config in &simulation.configs {
                let node = divergence.nodes.get(&config.name).map_or("", String::as_str);
                let _ = write!(out, "<td>{}</td>", escaped(node));
            }
            let _ = writeln!(out, "<td>{}</td></tr>", divergence.plugin.unwrap_or("–"));
        }
        out.push_str("</tbody>\n</table></div>\n");
    }
    out.push_str("</section>\n");
}

/// Text as HTML: names come from whoever wrote the objects.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
