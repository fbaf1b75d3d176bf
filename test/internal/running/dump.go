package running

import (
	"context"
	"fmt"
	"strings"
)

// Cell is one value of one row, as bytes.
type Cell struct {
	Table, Column string
	Value         []byte
	Number        bool // it is one in the database
}

// tablesOf lists, by the scheme of the store's URL, tables and views.
var tablesOf = map[string]string{
	"sqlite":   `SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'`,
	"postgres": `SELECT table_name FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`,
	"mysql":    `SELECT table_name FROM information_schema.tables WHERE table_schema = database()`,
}

// Dump reads every value of every table and view.
func Dump(storeURL string) (cells []Cell, err error) {
	scheme, _, _ := strings.Cut(storeURL, ":")
	err = Inspect(storeURL, func(db *Database) error {
		tables, err := db.words(tablesOf[scheme])
		if err != nil {
			return err
		}
		for _, table := range tables {
			if err := db.dump(table, &cells); err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
		}
		return nil
	})
	return cells, err
}

func (d *Database) words(query string) (all []string, err error) {
	rows, err := d.QueryContext(context.Background(), query)
	if err != nil {
		return nil, fmt.Errorf("listing tables: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, fmt.Errorf("listing tables: %w", err)
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

func (d *Database) dump(table string, cells *[]Cell) error {
	rows, err := d.QueryContext(context.Background(), "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	targets := make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i, v := range values {
			c := Cell{Table: table, Column: columns[i]}
			switch v := v.(type) {
			case nil:
				continue
			case []byte:
				c.Value = append([]byte(nil), v...)
			case string:
				c.Value = []byte(v)
			default:
				c.Value, c.Number = fmt.Append(nil, v), true
			}
			*cells = append(*cells, c)
		}
	}
	return rows.Err()
}

// Count answers a query for one number.
func (d *Database) Count(query string) (n int, err error) {
	err = d.QueryRowContext(context.Background(), query).Scan(&n)
	return n, err
}
