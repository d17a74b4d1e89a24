/* JSON into plain values. What is absent, or of another type, reads as zero: a record is checked by its name alone. */
#ifndef GBC_READ_H
#define GBC_READ_H

#include <jansson.h>

#include <gpubuf/gpubuf.h>

#define GBC_HANDLE_BYTES 64 /* of the IPC handles of CUDA */

void gbc_read_text(const json_t *object, const char *key, char *ret, size_t size);
uint64_t gbc_read_u64(const json_t *object, const char *key);
bool gbc_read_bool(const json_t *object, const char *key);
struct gpubuf_opt gbc_read_opt(const json_t *object, const char *key); /* null: not set */
/* Eight hexadecimal digits. */
struct gpubuf_opt gbc_read_crc(const json_t *object, const char *key);
/* 64 bytes in base64: true when it is that. */
bool gbc_read_handle(const json_t *value, unsigned char ret[GBC_HANDLE_BYTES]);
unsigned gbc_read_shape(const json_t *object, uint64_t ret[GPUBUF_DIMS_MAX]);
void gbc_read_device(const json_t *object, struct gpubuf_device_id *ret);

/* A record of JSON: 0, or -1 where what names it is missing. Written in full in every case. */
typedef int gbc_record_fn(const json_t *object, void *ret);
gbc_record_fn gbc_record_buffer;

#endif
