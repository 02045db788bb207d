//! Timing servers of Sterna and of candle: `sterna-peers sterna|candle --name value …` speaks the protocol of
//! README.md.
#![forbid(unsafe_code)]

mod candle;
mod case;
mod server;
mod sterna;

use std::error::Error;

use case::Case;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn serve(arguments: &[String]) -> Result<()> {
    let case = Case::read(arguments.get(1..).unwrap_or_default())?;
    match arguments.first().map(String::as_str) {
        Some("sterna") => server::serve(&mut sterna::Compiled::new(&case)?),
        Some("candle") => server::serve(&mut candle::Select::new(&case)?),
        _ => Err("the first argument is sterna or candle".into()),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = serve(&arguments) {
        println!("refused {}", error.to_string().replace('\n', " "));
    }
}
