//! What is wrong with a delivery before its signature is looked at.
//!
//! Which part it is, and never a byte of what was sent. What is said of it is up to the scheme whose rule is broken.

use super::secret::BadDigest;

/// What is wrong with the headers of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Malformed {
    NoSignature,
    SeveralLines(String),
    NamesDisagree(String, String),
    NoneLabelled,
    NoneWellFormed(BadDigest),
    TooMany,
    /// Where it should be.
    TimestampMissing(String),
    TimestampRepeated,
    /// Where it is.
    TimestampUnreadable(String),
    /// A field of the body that is signed by itself.
    FieldMissing(String),
    NoId(String),
    IdAmbiguous,
    AlgorithmUnknown(String),
    /// A listed header is missing, or the time is not among them.
    SignedHeadersOdd(String),
    /// Neither a form nor a hash in the URL: the signature says nothing about this body.
    BodyUncovered,
    /// The hash in the signed URL is another body's.
    BodyHashDiffers,
}
