//! Tells the program which candle it was built with.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo wrote Cargo.lock before it runs this");
    let after =
        lock.split("name = \"candle-core\"\nversion = \"").nth(1).expect("candle-core is a dependency");
    let version = after.split('"').next().expect("a split has a first part");
    println!("cargo::rustc-env=CANDLE_VERSION={version}");
}
