package mysql

// now is the database's clock, in microseconds. It is read once per statement;
// a script that needs one reading for several sets @now by setNow.
const (
	now    = `timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))`
	setNow = `SET @now = ` + now
)
