// Package cluster answers one question: do several instances on one store keep what one instance promises, whatever
// happens to some of them, to the database, to Redis and to the network between them?
//
// Its tests run three real processes with one configuration on PostgreSQL and on MariaDB, push to all their doors, and
// kill, freeze, thaw, restart and reconfigure them meanwhile. What they run them with, and how that is judged, is
// package running.
//
// What needs no several processes is proven elsewhere: that a worker with the owner name of a dead one is fenced all
// the same, say, by the suite of package storetest.
//
// POSTHOUSE_SOAK=1 makes the tests long.
package cluster
