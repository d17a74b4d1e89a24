/* Bytes that grow, always with a NUL behind them. Zeros are an empty one. */
#ifndef GBC_TEXT_H
#define GBC_TEXT_H

#include <gpubuf/gpubuf.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gbc_text {
    char *data; /* NULL as long as nothing was added */
    size_t bytes;
    size_t room;
    bool failed; /* memory was lacking once: what stands here is not whole */
};

void gbc_text_done(struct gbc_text *text);
void gbc_text_clear(struct gbc_text *text); /* keeps the memory */
void gbc_text_add(struct gbc_text *text, const void *data, size_t bytes);
void gbc_text_addf(struct gbc_text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As it stands in a path or a query. */
void gbc_text_escape(struct gbc_text *text, const char *plain);

/* Copies into out[0..size), cut to fit; plain may be NULL. */
void gbc_copy(char *out, size_t size, const char *plain);

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* Into plain values. What is absent, or of another type, reads as zero: a record is checked by its name alone. */

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
