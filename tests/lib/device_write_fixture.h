/* Blocking helpers for device writes, mirrored buffers and attributes; they return 0, or -1 with err. */
#ifndef WRITE_FIXTURE_H
#define WRITE_FIXTURE_H

#include "core_fixture.h"

/* The result of a call. */
struct core_result {
    struct gb_buffer_rec rec;
    bool created;
    bool copied;
    enum gb_copy_way way;
    struct gb_transfer_times times;
    struct gb_mem_attr attr;
};

struct gb_device_write_params core_copy_params(const char *from_session, const char *from, const char *session,
                                               const char *name);
struct gb_device_write_params core_fill_params(const char *session, const char *name, uint64_t pattern, unsigned width);

/* ret may be NULL in all of them. */
int core_write(struct gb_core *core, const struct gb_device_write_params *params, struct core_result *ret,
               struct gb_error *err);
int core_sync(struct gb_core *core, const char *session, const char *name, bool to_host, struct core_result *ret,
              struct gb_error *err);
int core_reserve(struct gb_core *core, const char *session, const char *name, bool host, uint64_t bytes,
                 struct core_result *ret, struct gb_error *err);
int core_release(struct gb_core *core, const char *session, const char *name, bool host, bool device,
                 struct core_result *ret, struct gb_error *err);
int core_attributes(struct gb_core *core, const char *session, const char *name, struct core_result *ret,
                    struct gb_error *err);
int core_create(struct gb_core *core, const struct gb_buffer_params *params, struct core_result *ret,
                struct gb_error *err);

/* As core_call_end. ret may be NULL. */
int core_result_end(struct core_call *c, struct core_result *ret, struct gb_error *err);

/* Asserts that the buffer holds these bytes. */
void core_expect(struct gb_core *core, const char *session, const char *name, const void *want, size_t n);

/* Uploads bytes that depend on seed, and stores them in out (may be NULL). */
void core_put(struct gb_core *core, const struct gb_upload_params *params, unsigned seed, void *out);

/* _begin makes a fixture with the sessions "default" and "other" for uint8 buffers. _end deletes "a", "b" and "c" of
 * both and asserts that nothing is in use. */
void core_open_two(struct core_fixture *f, const char *spec);
void core_put_bytes(struct core_fixture *f, const char *session, const char *name, uint64_t bytes, unsigned seed,
                    void *out);
void core_tidy(struct core_fixture *f);

/* Of a mirrored buffer "m" of the session "default", and its end. */
struct gb_upload_params core_mirrored(uint64_t bytes);
void core_remove_mirrored(struct core_fixture *f);
uint64_t core_allocations(struct core_fixture *f);

/* Beside a fault: true if the step's r is 0. Otherwise it counts as failed, and must have failed of the device. */
bool core_step(unsigned *failed, int r, struct gb_error *err);

/* Whether the first device has memory of that kind; the second function makes a buffer of it in the session
 * "default". */
bool core_kind_offered(struct core_fixture *f, enum gb_kind kind);
struct gb_buffer_params core_kind_params(const char *name, enum gb_kind kind, uint64_t bytes);

#endif
