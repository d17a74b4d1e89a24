/* Blocking helpers for multipart uploads; they return 0, or -1 with err. */
#ifndef INTAKE_FIXTURE_H
#define INTAKE_FIXTURE_H

#include "device_write_fixture.h"

/* Deletes "x" if it exists, waits until no call runs, and closes the fixture. */
void intake_fixture_done(struct core_fixture *f);

/* The result of a call about a multipart upload. */
struct intake_result {
    struct gb_multipart_view view;
    struct gb_buffer_rec rec;
    bool created;
};

/* ret may be NULL in all of them. They use the session "default" unless a session is named. */
int intake_begin(struct gb_core *core, const struct gb_upload_params *params, struct intake_result *ret,
                 struct gb_error *err);
int intake_complete(struct gb_core *core, const char *id, const struct gb_buffer_check *check, const uint32_t *crc,
                    struct intake_result *ret, struct gb_error *err);
/* The same with a SHA-256 of data[0..n). */
int intake_complete_digest(struct gb_core *core, const char *id, const void *data, size_t n, struct intake_result *ret,
                           struct gb_error *err);
void intake_digest(const void *data, size_t n, struct gb_multipart_expected *ret);
int intake_delete(struct gb_core *core, const char *id, struct gb_error *err);
int intake_settle(struct gb_core *core, const char *id, struct intake_result *ret, struct gb_error *err);
void intake_get(struct gb_core *core, const char *id, struct gb_multipart_view *ret); /* ends the test on failure */

/* Sends a whole part. */
int intake_part(struct gb_core *core, const char *id, uint64_t offset, const void *data, size_t n,
                struct gb_error *err);
/* The same, interrupted after `sent` bytes. */
int intake_part_broken(struct gb_core *core, const char *id, uint64_t offset, size_t n, const void *data, size_t sent,
                       struct gb_error *err);

/* Appends data[0..n). If params is given, the call creates the multipart upload as params say and writes its id. With
 * breaks, the append is interrupted instead of ended. */
int intake_append(struct gb_core *core, char id[GB_MULTIPART_ID_SIZE], const struct gb_upload_params *params,
                  uint64_t offset, const void *data, size_t n, bool breaks, struct gb_error *err);

/* Waits until the multipart upload has ended. */
void intake_until_quiet(struct gb_core *core, const char *id, struct gb_multipart_view *ret);

#endif
