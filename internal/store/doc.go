// Package store holds one adapter per database: sqlite, postgres and mysql.
// Each is complete in itself and answers the same contract, which
// storetest.Store states and storetest.Run proves; migrate brings schemas up
// and down.
package store
