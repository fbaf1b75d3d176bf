// Package httpapi answers how operators and programs look at what was kept,
// switch its consumption, and say what happened and whom to tell: the admin API,
// its OpenAPI document, the metrics page and the health checks.
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
//	POST /v1/notifications                  accept one
//	POST /v1/notifications:batch            accept up to 1,000, each by itself
//	GET  /v1/notifications/{id}             with its deliveries and timeline
//	POST /v1/notifications/{id}/cancel
//	GET  /v1/users/{id}/messages?after=&limit=
//	GET  /v1/deliveries?status=&channel=&from=&to=&cursor=&limit=
//	GET  /v1/deliveries/{id}                with its attempts
//	POST /v1/deliveries/{id}/replay
//	POST /v1/deliveries/{id}/resolve        what became of an uncertain one
//	POST /v1/deliveries/replay              many, by a filter or by ids
//	GET  /v1/channels
//	POST /v1/channels/{name}/pause
//	POST /v1/channels/{name}/resume
//	POST /v1/channels/{name}/test
//	GET  /v1/audit?target=&cursor=          what operators did
//	GET  /v1/instances?dead=                who lives, and who holds which partitions
//	GET  /openapi.json /metrics /healthz /readyz
//
// Every answer that is not 2xx is a problem document (RFC 9457) with a code
// from model.Code, or "conflict"; it never repeats a value that was sent, and never shows an
// internal error, which goes to the log. Lists page by an opaque cursor. Times
// are RFC 3339 UTC with microseconds; what is absent is null. A body is JSON, and
// read strictly: a member that is not known is refused, by name, and what narrows
// a choice must not be empty. At most 50 faults of a request are told. Values of
// variables are never shown, and addresses only masked.
//
// There are no API keys yet: who may reach the address may read everything.
// The address must therefore be a loopback one, and what a browser could be
// made to do there by a foreign page is refused: requests under a foreign name
// (DNS rebinding), writes from another origin, and showing a kept body as a
// document.
package httpapi
