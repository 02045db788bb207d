//! Tells the program which peers it was built with.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").expect("Cargo wrote Cargo.lock before it runs this");
    for name in ["rten", "tract-onnx", "candle-onnx"] {
        let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1);
        let version = after.and_then(|after| after.split('"').next()).expect("it is a dependency");
        let variable = name.replace('-', "_").to_uppercase();
        println!("cargo::rustc-env={variable}_VERSION={version}");
    }
}
