//! `sterna-model-peers sterna|rten|tract|candle FOLDER THREADS CALLERS SECONDS`: loads the model in a folder
//! of `export.py`, runs it, and prints one line of JSON, as README.md says; `{"refused": REASON}` where the
//! library does not take the model.
#![forbid(unsafe_code)]

mod candle;
mod case;
mod measure;
mod rten;
mod sterna;
mod tract;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use case::Case;
use measure::{Options, measured};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn answered(arguments: &[String]) -> Result<String> {
    let [peer, folder, threads, callers, seconds] = arguments else {
        return Err("usage: sterna-model-peers PEER FOLDER THREADS CALLERS SECONDS".into());
    };
    let case = Case::read(Path::new(folder))?;
    let time = Duration::from_secs_f64(seconds.parse()?);
    let options = Options { threads: threads.parse()?, callers: callers.parse()?, time };
    match peer.as_str() {
        "sterna" => measured::<sterna::Sterna>(&case, &options),
        "rten" => measured::<rten::Rten>(&case, &options),
        "tract" => measured::<tract::Tract>(&case, &options),
        "candle" => measured::<candle::Candle>(&case, &options),
        _ => Err("the peers are sterna, rten, tract and candle".into()),
    }
}

/// The reasons of an error, from the outermost inwards, as they can stand in JSON: the first line of each, as
/// a backtrace may follow.
fn reasons(error: &(dyn Error + 'static)) -> String {
    let reasons = std::iter::successors(Some(error), |&error| error.source());
    let first = |error: &dyn Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let text = reasons.map(first).collect::<Vec<_>>().join(": ").replace('"', "'").replace('\\', "/");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match answered(&arguments) {
        Ok(line) => println!("{line}"),
        Err(error) => println!(r#"{{"refused": "{}"}}"#, reasons(&*error)),
    }
}
