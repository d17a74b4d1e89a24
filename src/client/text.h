/* Bytes that grow, always with a NUL behind them. Zeros are an empty one. */
#ifndef GBC_TEXT_H
#define GBC_TEXT_H

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

#endif
