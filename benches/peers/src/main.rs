//! Timing servers of Sterna, of candle and of the limit: `sterna-peers sterna|candle|limit --name value …`
//! speaks the protocol of README.md.
#![deny(unsafe_code)]

mod candle;
mod case;
mod limit;
#[path = "../../baseline/loops.rs"]
#[allow(unsafe_code, reason = "plain loops on raw memory")]
mod loops;
mod server;
mod sterna;
#[path = "../../../cli/src/bench/streams.rs"]
#[allow(dead_code, reason = "the command line uses more of it")]
mod streams;

use std::error::Error;

use case::Case;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn serve(arguments: &[String]) -> Result<()> {
    let case = Case::read(arguments.get(1..).unwrap_or_default())?;
    match arguments.first().map(String::as_str) {
        Some("sterna") => server::serve(&mut sterna::Compiled::new(&case)?),
        Some("candle") => server::serve(&mut candle::Select::new(&case)?),
        Some("limit") if case.is_select() => server::serve(&mut limit::Select::new(&case)?),
        Some("limit") => server::serve(&mut limit::Stream::new(&case)?),
        _ => Err("the first argument is sterna, candle or limit".into()),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = serve(&arguments) {
        println!("refused {}", error.to_string().replace('\n', " "));
    }
}
