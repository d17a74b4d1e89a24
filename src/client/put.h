/* Transfers: what one connection and several have in common. */
#ifndef GBC_PUT_H
#define GBC_PUT_H

#include "client/io.h"
#include "client/parts.h"

void gbc_put_query(struct gbc_request *request, const struct gpubuf_put_params *params);

/* 0, or -1 with CHECK_FAILED. */
int gbc_crc_same(uint32_t here, bool stated, uint32_t there, struct gpubuf_error *err);

/* source is random, and says how many bytes it has: more than a part. */
int gbc_put_parts(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_source *source,
                  const struct gpubuf_put_params *params, struct gpubuf_buffer *ret, struct gpubuf_error *err);

/* What the headers of a download say. */
void gbc_got_of(const struct gbc_reply *reply, struct gpubuf_got *ret);
void gbc_get_query(struct gbc_request *request, const struct gpubuf_get_params *params);

/* head: of the whole; target is random and has room. */
int gbc_get_parts(gpubuf_client *client, const char *session, const char *buffer, const struct gpubuf_target *target,
                  const struct gpubuf_get_params *params, const struct gpubuf_got *head, struct gpubuf_opt crc32c,
                  struct gpubuf_error *err);

#endif
