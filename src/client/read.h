/* JSON into plain values. What is absent, or of another type, reads as zero: a record is checked by its name alone. */
#ifndef GBC_READ_H
#define GBC_READ_H

#include <jansson.h>

#include <gpubuf/gpubuf.h>

void gbc_read_text(const json_t *object, const char *key, char *ret, size_t size);
uint64_t gbc_read_u64(const json_t *object, const char *key);
double gbc_read_real(const json_t *object, const char *key);
bool gbc_read_bool(const json_t *object, const char *key);
struct gpubuf_opt gbc_read_opt(const json_t *object, const char *key); /* null: not set */
/* Eight hexadecimal digits. */
struct gpubuf_opt gbc_read_crc(const json_t *object, const char *key);
/* 64 bytes in base64: true when it is that. */
bool gbc_read_handle(const json_t *value, unsigned char ret[GPUBUF_HANDLE_BYTES]);
unsigned gbc_read_shape(const json_t *object, uint64_t ret[GPUBUF_DIMS_MAX]);
void gbc_read_device(const json_t *object, struct gpubuf_device_id *ret);

/* A record of JSON: 0, or -1 where what names it is missing. Written in full in every case. */
typedef int gbc_record_fn(const json_t *object, void *ret);
gbc_record_fn gbc_record_daemon, gbc_record_device, gbc_record_session, gbc_record_pool, gbc_record_stream,
    gbc_record_event, gbc_record_buffer, gbc_record_last_transfer, gbc_record_verified, gbc_record_operation,
    gbc_record_upload, gbc_record_part, gbc_record_lease, gbc_record_exported, gbc_record_tensors, gbc_record_batch,
    gbc_record_stats, gbc_record_stored, gbc_record_swept, gbc_record_storage, gbc_record_scrubbed,
    gbc_record_checkpoint, gbc_record_checkpoint_verified, gbc_record_restored, gbc_record_fleet, gbc_record_node,
    gbc_record_fleet_session, gbc_record_moved, gbc_record_placed, gbc_record_taken;

#endif
