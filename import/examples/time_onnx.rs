//! Times a model.
use std::time::Instant;
use sterna::*;
use sterna_import::{ModelFile, Options};
fn npy(path: &str, desc: &LogicalTensor, engine: &Engine) -> TensorBuf {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let mut t = TensorBuf::zeroed(desc.clone(), engine).unwrap();
    t.as_mut_bytes().copy_from_slice(&bytes[header..]);
    t
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let threads: usize = args[4].parse().unwrap();
    let engine = Engine::builder().threads(threads).constant_cache_capacity(4 << 30).build();
    let t = Instant::now();
    let file = ModelFile::open(args[1].as_ref(), &Options::default()).unwrap();
    println!("open {:?}", t.elapsed());
    let t = Instant::now();
    let imported = file.import(&Options::default()).unwrap();
    println!("import {:?}", t.elapsed());
    let t = Instant::now();
    let p = imported.graph.partitions(Policy::Fusion).unwrap();
    println!("partition {:?}, {} partitions, {} ops", t.elapsed(), p.len(), imported.graph.ops().len());
    let t = Instant::now();
    let session = Session::new(imported, &engine).unwrap();
    println!("session {:?} steps {:?} memory {}", t.elapsed(), session.run_steps(), session.run_memory());
    let x = npy(&args[2], &session.inputs()[0].tensor, &engine);
    let t = Instant::now();
    let y = session.run(&[("x", &x)]).unwrap();
    println!("first run {:?}", t.elapsed());
    let expected = npy(&args[3], y["y"].desc(), &engine);
    let (a, b) = (y["y"].as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
    let most = b.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    println!("differs {:e}", a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / most);
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let t = Instant::now();
            session.run(&[("x", &x)]).unwrap();
            t.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("run ms min {:.3} median {:.3}", times[0], times[7]);
}
