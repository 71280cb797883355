/* A good first line. */

//@fro i in 0..4
//@end
