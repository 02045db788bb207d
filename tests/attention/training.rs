//! Promise: a transformer learns with graphs of Sterna alone, forward and backward, and its gradients are the
//! slopes of its loss.

#[path = "../../examples/training.rs"]
#[allow(unreachable_pub, reason = "an example is a program")]
mod example;

use crate::common::report;
use example::{Dropout, Training};
use sterna::Engine;

#[test]
fn the_loss_falls() {
    let mut training = Training::new(&Engine::new(), None).unwrap();
    assert_eq!(training.partitions().1, 2, "each layer's gradients of attention are one partition");
    let first = training.run().unwrap();
    for _ in 0..120 {
        training.step();
        training.run().unwrap();
    }
    let last = training.run().unwrap();
    assert!(first > 1.5 && last < 0.2 * first, "the loss is {first} first and {last} at the end");
}

#[test]
fn the_loss_falls_with_elements_left_out() {
    let dropout = Dropout { seed: 1, probability: 0.05 };
    let mut training = Training::new(&Engine::new(), Some(dropout)).unwrap();
    let first = training.run().unwrap();
    for step in 0..120 {
        training.step();
        training.seed(2 + step);
        training.run().unwrap();
    }
    let last = training.run().unwrap();
    assert!(first > 1.5 && last < 0.5 * first, "the loss is {first} first and {last} at the end");
}

#[test]
fn equal_seeds_leave_out_the_same() {
    let dropout = Dropout { seed: 7, probability: 0.3 };
    let mut training = Training::new(&Engine::new(), Some(dropout)).unwrap();
    let first = training.run().unwrap();
    assert_eq!(training.run().unwrap().to_bits(), first.to_bits());
    training.seed(8);
    assert_ne!(training.run().unwrap().to_bits(), first.to_bits());
    training.seed(7);
    assert_eq!(training.run().unwrap().to_bits(), first.to_bits());
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    assert_slopes(None);
}

#[test]
fn gradients_with_elements_left_out_are_the_slopes_of_the_loss() {
    assert_slopes(Some(Dropout { seed: 1, probability: 0.3 }));
}

fn assert_slopes(dropout: Option<Dropout>) {
    const STEP: f32 = 1.0 / 256.0;
    let mut training = Training::new(&Engine::new(), dropout).unwrap();
    training.run().unwrap();
    let parameters = training.parameters.clone();
    let gradients: Vec<Vec<f32>> = (0..parameters.len()).map(|place| training.gradient(place)).collect();
    let mut wrong = Vec::new();
    for (&(id, _), gradient) in parameters.iter().zip(&gradients) {
        let numbers = training.read(id);
        for at in (0..numbers.len()).step_by(numbers.len() / 5) {
            let mut loss = |step: f32| {
                let mut moved = numbers.clone();
                moved[at] += step;
                training.write(id, &moved);
                training.run().unwrap()
            };
            let slope = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
            if (slope - gradient[at]).abs() > 2e-3 * (1.0 + slope.abs()) {
                wrong.push((id, at, gradient[at], slope));
            }
        }
        training.write(id, &numbers);
    }
    report(&wrong);
}
