/* Uploads in several requests, made to wait: 0, or -1 with err. */
#ifndef INTAKE_FIXTURE_H
#define INTAKE_FIXTURE_H

#include "device_write_fixture.h"

/* Deletes "x" if it is there, waits until nothing is under way, and ends the fixture. */
void intake_fixture_done(struct core_fixture *f);

/* What a call about a multipart upload came to. */
struct intake_result {
    struct gb_multipart_view view;
    struct gb_buffer_rec rec;
    bool created;
};

/* ret may be NULL in all of them. Everything is of the session "default" unless named. */
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
void intake_get(struct gb_core *core, const char *id, struct gb_multipart_view *ret); /* ends the test when it cannot */

/* A part from its beginning to its end. */
int intake_part(struct gb_core *core, const char *id, uint64_t offset, const void *data, size_t n,
                struct gb_error *err);
/* The same, broken off after `sent` bytes. */
int intake_part_broken(struct gb_core *core, const char *id, uint64_t offset, size_t n, const void *data, size_t sent,
                       struct gb_error *err);

/* An append that is described as params say where params is given (then a new one is made), of data[0..n); ends, or
 * with breaks its line goes. id: written when it is new. */
int intake_append(struct gb_core *core, char id[GB_MULTIPART_ID_SIZE], const struct gb_upload_params *params,
                  uint64_t offset, const void *data, size_t n, bool breaks, struct gb_error *err);

/* Until it is not under way any more. */
void intake_until_quiet(struct gb_core *core, const char *id, struct gb_multipart_view *ret);

#endif
