/* Adoptions: memory of this process that is a buffer of the daemon. */
#include <stdlib.h>
#include <string.h>

#include "client/unix_conn.h"

struct gpubuf_adoption {
    struct gbc_link *link;
    char session[GPUBUF_NAME_SIZE];
    char buffer[GPUBUF_NAME_SIZE];
    char created_at[GPUBUF_TIME_SIZE]; /* tells it from another of that name */
    char side[GPUBUF_WORD_SIZE];       /* "": it is all of the buffer */
};

bool gpubuf_adoption_alive(const gpubuf_adoption *adoption) {
    return gbc_link_alive(adoption->link);
}

/* One side of a mirrored buffer. */
struct side {
    bool current; /* it has the newest bytes */
    bool owned;   /* by the daemon; false: another process owns the memory */
};

/* A buffer, as far as it says whether it still is an adoption. */
struct adopted {
    struct gpubuf_buffer buffer;
    char created_at[GPUBUF_TIME_SIZE];
    bool adopted;
    struct side host;
    struct side device;
};

static struct side side_of(const json_t *sides, const char *key) {
    const json_t *o = json_object_get(sides, key);
    struct side side = {gbc_read_bool(o, "current"), gbc_read_bool(o, "owned")};

    return side;
}

static int take_adopted(const json_t *o, void *ret) {
    const json_t *sides = json_object_get(o, "sides");
    struct adopted *r = ret;

    gbc_read_text(o, "created_at", r->created_at, sizeof(r->created_at));
    r->adopted = gbc_read_bool(o, "adopted");
    r->host = side_of(sides, "host");
    r->device = side_of(sides, "device");
    return gbc_record_buffer(o, &r->buffer);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void put_handle(struct gbc_request *request, json_t *body, const unsigned char *handle) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[(GBC_HANDLE_BYTES + 2) / 3 * 4 + 1];
    size_t at = 0;
    size_t i;

    if (!handle) {
        gbc_error_set(&request->wrong, GPUBUF_BAD_ARGUMENT, "the ways legacy and pool need a handle");
        return;
    }
    for (i = 0; i < GBC_HANDLE_BYTES; i += 3) {
        uint32_t bits = (uint32_t)handle[i] << 16;

        bits |= i + 1 < GBC_HANDLE_BYTES ? (uint32_t)handle[i + 1] << 8 : 0;
        bits |= i + 2 < GBC_HANDLE_BYTES ? handle[i + 2] : 0;
        text[at++] = digits[bits >> 18];
        text[at++] = digits[bits >> 12 & 63];
        text[at++] = i + 1 < GBC_HANDLE_BYTES ? digits[bits >> 6 & 63] : '=';
        text[at++] = i + 2 < GBC_HANDLE_BYTES ? digits[bits & 63] : '=';
    }
    text[at] = '\0';
    gbc_put_text(&request->wrong, body, "handle", text);
}

static const char *way_name(enum gpubuf_way way) {
    switch (way) {
    case GPUBUF_WAY_VMM:
        return "vmm";
    case GPUBUF_WAY_POOL:
        return "pool";
    case GPUBUF_WAY_LEGACY:
        return "legacy";
    default:
        return "memfd";
    }
}

static char *adopt_json(struct gbc_request *request, const struct gpubuf_adopt_params *params) {
    json_t *body = json_object();
    char *text;

    gbc_put_text(&request->wrong, body, "way", way_name(params->way));
    gbc_put_text(&request->wrong, body, "side", params->side);
    gbc_put_text(&request->wrong, body, "dtype", params->dtype);
    gbc_put_shape(&request->wrong, body, "shape", params->shape);
    if (params->bytes > 0)
        gbc_put_u64(&request->wrong, body, "bytes", params->bytes);
    if (params->offset > 0)
        gbc_put_u64(&request->wrong, body, "offset", params->offset);
    if (params->map_bytes > 0)
        gbc_put_u64(&request->wrong, body, "map_bytes", params->map_bytes);
    if (params->way == GPUBUF_WAY_LEGACY || params->way == GPUBUF_WAY_POOL)
        put_handle(request, body, params->handle);
    gbc_put_device(&request->wrong, body, "device", params->device);
    text = gbc_json_text(body, &request->wrong);
    json_decref(body);
    return text;
}

static int ask(gpubuf_client *client, gpubuf_adoption *a, struct gbc_request *request,
               const struct gpubuf_adopt_params *params, struct adopted *ret, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    char *json = adopt_json(request, params);
    int r = -1;

    if (request->wrong.code != GPUBUF_OK) {
        gbc_error_set(err, request->wrong.code, "%s", request->wrong.detail);
    } else {
        r = gbc_link_give(a->link, "POST", request->target.data, json,
                          params->way == GPUBUF_WAY_LEGACY ? -1 : params->fd, params->wait_s, &client->set.interrupted,
                          &answer, err);
        if (r == 0)
            r = gbc_parse(&answer.reply.body, take_adopted, ret, err);
        ret->buffer.created = answer.reply.status == 201;
        gbc_link_answer_done(&answer);
    }
    free(json);
    return r;
}

static int check(const struct gpubuf_adopt_params *params, const struct gbc_request *request,
                 struct gpubuf_error *err) {
    if (request->target.failed)
        return gbc_error_memory(err);
    if (request->wrong.code != GPUBUF_OK)
        return gbc_error_set(err, request->wrong.code, "%s", request->wrong.detail);
    if (!params || (params->way != 0 && params->way != GPUBUF_WAY_MEMFD && params->way != GPUBUF_WAY_VMM &&
                    params->way != GPUBUF_WAY_POOL && params->way != GPUBUF_WAY_LEGACY))
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT,
                             "memory is adopted by one of the ways memfd, vmm, pool and legacy");
    if (params->way != GPUBUF_WAY_LEGACY && params->fd < 0)
        return gbc_error_set(err, GPUBUF_BAD_ARGUMENT, "the way %s needs a descriptor", way_name(params->way));
    return 0;
}

int gpubuf_adopt(gpubuf_client *client, const char *session, const char *buffer,
                 const struct gpubuf_adopt_params *params, gpubuf_adoption **ret, struct gpubuf_buffer *ret_buffer,
                 struct gpubuf_error *err) {
    struct adopted record = {.adopted = false};
    struct gbc_request request;
    gpubuf_adoption *a = calloc(1, sizeof(*a));
    int r = -1;

    gbc_error_init(err);
    gbc_request_init(&request, "POST", "/v1/sessions/%/buffers/%/adopt", session, buffer);
    if (!a) {
        gbc_error_memory(err);
    } else if (check(params, &request, err) == 0 && gbc_link_up(client, err) == 0) {
        a->link = gbc_link_ref(client->link);
        r = ask(client, a, &request, params, &record, err);
    }
    gbc_request_done(&request);
    if (r < 0) {
        gbc_link_leave(a ? a->link : NULL);
        free(a);
        return -1;
    }
    gbc_copy(a->session, sizeof(a->session), record.buffer.session);
    gbc_copy(a->buffer, sizeof(a->buffer), record.buffer.name);
    gbc_copy(a->created_at, sizeof(a->created_at), record.created_at);
    gbc_copy(a->side, sizeof(a->side), params->side ? params->side : "");
    if (ret_buffer)
        *ret_buffer = record.buffer;
    *ret = a;
    return 0;
}

/* --- releasing ---------------------------------------------------------------------------------------------------- */

#define BUFFER "/v1/sessions/%/buffers/%"

/* json: the body or NULL. record may be NULL: the answer is not looked at. */
static int ask_of(const gpubuf_adoption *a, const char *method, const char *path, const char *json,
                  struct adopted *record, struct gpubuf_error *err) {
    struct gbc_link_answer answer;
    struct gbc_request request;
    int r = -1;

    gbc_request_init(&request, method, path, a->session, a->buffer);
    if (request.target.failed) {
        gbc_error_memory(err);
    } else {
        r = gbc_link_ask(a->link, method, request.target.data, json, 0, NULL, &answer, err);
        if (r == 0 && record)
            r = gbc_parse(&answer.reply.body, take_adopted, record, err);
        gbc_link_answer_done(&answer);
    }
    gbc_request_done(&request);
    return r;
}

/* The other side gets the bytes if it lacks them. */
static int release_side(const gpubuf_adoption *a, const struct adopted *record, struct gpubuf_error *err) {
    bool host = strcmp(a->side, "host") == 0;
    const struct side *mine = host ? &record->host : &record->device;
    const struct side *other = host ? &record->device : &record->host;
    const char *sync = host ? "{\"to\":\"device\"}" : "{\"to\":\"host\"}";
    const char *release = host ? "{\"side\":\"host\"}" : "{\"side\":\"device\"}";

    if (mine->owned) /* it went already */
        return 0;
    if (mine->current && !other->current && ask_of(a, "POST", BUFFER "/sync", sync, NULL, err) < 0)
        return -1;
    return ask_of(a, "POST", BUFFER "/release", release, NULL, err);
}

static int release(const gpubuf_adoption *a, const struct adopted *record, struct gpubuf_error *err) {
    if (!record->adopted || strcmp(record->created_at, a->created_at) != 0)
        return 0;
    return a->side[0] ? release_side(a, record, err) : ask_of(a, "DELETE", BUFFER, NULL, NULL, err);
}

int gpubuf_adoption_release(gpubuf_adoption *adoption, struct gpubuf_error *err) {
    struct adopted record = {.adopted = false};
    struct gpubuf_error why;
    int r = 0;

    gbc_error_init(err);
    gbc_error_init(&why);
    if (!adoption)
        return 0;
    if (gbc_link_alive(adoption->link)) { /* else it ended with the connection */
        r = ask_of(adoption, "GET", BUFFER, NULL, &record, &why);
        if (r == 0)
            r = release(adoption, &record, &why);
        if (why.code == GPUBUF_BUFFER_NOT_FOUND || why.code == GPUBUF_SESSION_NOT_FOUND)
            r = 0;
    }
    if (r < 0 && err)
        *err = why;
    gbc_link_leave(adoption->link);
    free(adoption);
    return r;
}
