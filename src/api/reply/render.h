/* Records as JSON. Each writes one object; key is NULL inside a list. */
#ifndef GB_API_REPLY_RENDER_H
#define GB_API_REPLY_RENDER_H

#include "api/context.h"
#include "base/json_writer.h"
#include "base/process.h"
#include "core/core.h"
#include "fleet/fleet.h"
#include "http/http.h"
#include "model/device.h"

void gb_render_session(struct gb_json_writer *out, const char *key, const struct gb_session_view *view);
/* Adds what the directory has of a session besides its owner, as far as it is set: failover, tenant, copies. */
void gb_render_owned(struct gb_json_writer *out, const struct gb_fleet_session *session);
void gb_render_buffer(struct gb_json_writer *out, const char *key, const struct gb_api *api, const char *session,
                      const struct gb_buffer_rec *rec);
void gb_render_pool(struct gb_json_writer *out, const char *key, const struct gb_api *api,
                    const struct gb_pool_view *view);
void gb_render_stream(struct gb_json_writer *out, const char *key, const char *session,
                      const struct gb_stream_view *view);
void gb_render_event(struct gb_json_writer *out, const char *key, const char *session,
                     const struct gb_event_view *view);

/* The same without the braces, for replies that have further members. */
void gb_render_buffer_members(struct gb_json_writer *out, const struct gb_api *api, const char *session,
                              const struct gb_buffer_rec *rec);
void gb_render_pool_members(struct gb_json_writer *out, const struct gb_api *api, const struct gb_pool_view *view);

void gb_render_shape(struct gb_json_writer *out, const char *key, const struct gb_shape *shape);
/* Index and UUID, because an index may name another device after a restart. */
void gb_render_device_id(struct gb_json_writer *out, const char *key, const struct gb_api *api, int device);

/* Adds the members "transfers" and "allocations" to the object that is open. kinds: transfers by direction and kind of
 * memory; NULL when they are not counted by kind. */
void gb_render_counters(struct gb_json_writer *out, const struct gb_counters *counters,
                        const struct gb_level_numbers *level,
                        const struct gb_kind_counters kinds[GB_DIRECTION_COUNT][GB_KIND_COUNT]);

/* Adds the member "sharing": what other processes map. */
void gb_render_sharing(struct gb_json_writer *out, const struct gb_counters *counters, uint64_t leases,
                       uint64_t held_bytes, uint64_t adopted);

/* Opens the object of a list and its "items". gb_render_list_close closes both and adds "next_cursor": that of the
 * next page; NULL when no items follow. */
void gb_render_list_open(struct gb_json_writer *out);
/* A page ends at this size, whatever its limit says. A thousand records of the common kind fit; with labels of 2 KiB
 * each they would take three times as much. */
#define GB_LIST_BYTES (1u << 20)
bool gb_render_list_full(const struct gb_json_writer *out);
void gb_render_list_close(struct gb_json_writer *out, const char *cursor);

/* The health of a device as JSON. */

/* Adds the object "health". Unknown numbers are null; without a source there is only the reason. */
void gb_render_health(struct gb_json_writer *out, const struct gb_health *health);

/* The state of the storage of durable buffers, in one word for all replies that show it. */

/* Where durable changes of the database fail, the storage as a whole has failed. n->present. *ret_why borrows from n;
 * its code is GB_OK in state READY. */
enum gb_disk_state gb_storage_state(const struct gb_storage_numbers *n, const struct gb_error **ret_why);

/* Numbers as JSON that several replies have. */

struct gb_api;

void gb_render_failures(struct gb_json_writer *out, const uint64_t failure[GB_FAILURES], enum gb_failed what);

/* Adds the level and all counts. */
void gb_render_memory(struct gb_json_writer *out, const struct gb_memory_numbers *memory);
/* Adds "allocations_by_kind": each kind of memory that was asked for. */
void gb_render_memory_kinds(struct gb_json_writer *out, const struct gb_memory_numbers memory[GB_KIND_COUNT]);

/* Add "http" and "process". */
void gb_render_server(struct gb_json_writer *out, const struct gb_http_server_stat *stat);
void gb_render_process(struct gb_json_writer *out, const struct gb_process *process);

/* Reads what the kernel knows of this process, and asks it at most every GB_RESPONSE_CACHE_AGE_NS. [any thread] */
void gb_api_process(struct gb_api *api, struct gb_process *ret);

#endif
