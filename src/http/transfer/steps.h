/* The steps of a transfer, shared by receive.c and transfer.c. */
#ifndef GB_HTTP_TRANSFER_STEPS_H
#define GB_HTTP_TRANSFER_STEPS_H

#include "http/server.h"

enum outcome {
    AGAIN, /* go on with the next state */
    LATER, /* an event or a wake will come, or the turn is over */
    GONE   /* t is freed */
};

/* States CONTINUE and BODY. */
enum outcome gb_http_transfer_continue(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);
enum outcome gb_http_transfer_receive(struct gb_transfer_loop *transfer_loop, struct gb_http_transfer *t);

/* The socket is readable from so many bytes on. */
void gb_http_transfer_mark(struct gb_http_transfer *t, int bytes);

#endif
