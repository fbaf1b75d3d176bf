package postgres

// now is the database's clock, in microseconds. It reads on within a
// transaction; whoever needs one reading takes it once.
const now = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
