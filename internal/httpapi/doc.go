// Package httpapi answers how operators and programs look at what was kept,
// and switch its consumption: the admin API, its OpenAPI document, the metrics
// page and the health checks.
//
//	GET  /v1/inbox/messages?source=&state=&cursor=&limit=
//	GET  /v1/inbox/messages/{id}            with its attempts
//	GET  /v1/inbox/messages/{id}/body       the exact bytes
//	GET  /v1/inbox/messages/{id}/headers    the header lines that were kept
//	GET  /v1/inbox/stats
//	GET  /v1/inbox/sources
//	GET  /v1/inbox/sources/{source}/rejects what was turned away lately
//	POST /v1/inbox/sources/{source}/pause
//	POST /v1/inbox/sources/{source}/resume
//	GET  /v1/inbox/rejects                  what came for no known source
//	GET  /v1/instances?dead=                who lives, and who holds which partitions
//	GET  /openapi.json /metrics /healthz /readyz
//
// Every answer that is not 2xx is a problem document (RFC 9457) with a code
// from model.Code; it never repeats a value that was sent, and never shows an
// internal error, which goes to the log. Lists page by an opaque cursor. Times
// are RFC 3339 UTC with microseconds; what is absent is null.
//
// There are no API keys yet: who may reach the address may read everything.
// The address must therefore be a loopback one, and what a browser could be
// made to do there by a foreign page is refused: requests under a foreign name
// (DNS rebinding), writes from another origin, and showing a kept body as a
// document.
package httpapi
