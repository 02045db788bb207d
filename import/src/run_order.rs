//! The order in which the layers of a model run.

use std::collections::BTreeSet;

/// Layers in an order in which each comes behind those that it needs, in that of the model otherwise. `needs`
/// are the layers that each one needs; `None` for one on which nothing hangs. Layers of a cycle, and those
/// behind it, are left out.
pub(crate) fn run_order(needs: &[Option<BTreeSet<usize>>]) -> Vec<usize> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut waiting: Vec<usize> = vec![0; needs.len()];
    let mut ready = BTreeSet::new();
    for (index, from) in needs.iter().enumerate() {
        let Some(from) = from else { continue };
        from.iter().for_each(|&from| users[from].push(index));
        waiting[index] = from.len();
        if from.is_empty() {
            ready.insert(index);
        }
    }
    let mut order = Vec::new();
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &user in &users[index] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.insert(user);
            }
        }
    }
    order
}
