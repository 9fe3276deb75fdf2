//! Recognises what was given instead of metadata, so that a message can name it.
