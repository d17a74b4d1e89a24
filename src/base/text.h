/* Immutable text that many share: a count of references and the bytes. NULL is an empty text, and is accepted
 * everywhere. */
#ifndef GB_BASE_TEXT_H
#define GB_BASE_TEXT_H

#include <stddef.h>

struct gb_text;

/* Copies text[0..len), with one reference. [any thread] NULL when memory is exhausted. */
struct gb_text *gb_text_new(const char *text, size_t len);

/* One reference more. [any thread] Returns text. */
struct gb_text *gb_text_ref(struct gb_text *text);

/* One reference less; the last one frees. [any thread] */
void gb_text_unref(struct gb_text *text);

/* A reference to text into *at, which gives back what it had. [any thread] */
void gb_text_set(struct gb_text **at, struct gb_text *text);

/* The bytes with a NUL behind them, valid as long as the caller's reference; "" for NULL. */
const char *gb_text_s(const struct gb_text *text);

#endif
