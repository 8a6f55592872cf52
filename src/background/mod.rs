//! What runs after the answer: workers, dispatchers, retention, alerts. The parts are steps that are given the time;
//! the threads that run them stand in `daemon`.

pub mod worker;
pub mod dispatcher;
mod circuit;
pub mod given_up;
pub mod retention;
pub mod alerts;
