/*
 * Work that several threads may ask for at once and that is to be done once: the first thread to
 * board a key's flight leads and does the work, the others wait for it to land and share the
 * outcome.
 */
#ifndef SMELT_RUNTIME_FLIGHT_H
#define SMELT_RUNTIME_FLIGHT_H

#include <pthread.h>

#include "smelt/status.h"

enum { SMELT__FLIGHT_KEY = 320 };

struct smelt__flight {
    char key[SMELT__FLIGHT_KEY];
    void *result; /* the leader's, set before landing; NULL after a failure */
    smelt_status status;
    char *message; /* of a failure, whole, for the threads that waited; NULL: memory was out */
    int landed;
    int listed; /* found by threads that come later */
    int users;  /* threads between board and leave */
    struct smelt__flight *next;
};

struct smelt__flights {
    pthread_mutex_t mutex;
    pthread_cond_t landing;
    struct smelt__flight *first;
    int keep; /* successful flights stay listed until the end */
    void (*free_result)(void *result);
};

void smelt__flights_init(struct smelt__flights *flights, int keep, void (*free_result)(void *));
/* No thread may be aboard. Frees the kept flights and their results. */
void smelt__flights_finish(struct smelt__flights *flights);

/* *flight: the key's flight, NULL when memory is out. 1: the caller leads and must land it; 0: it
 * has landed. Either way the caller leaves it in the end. A waiter of a failed flight finds its own
 * thread's message set. */
int smelt__flight_board(struct smelt__flights *flights, const char *key,
                        struct smelt__flight **flight);
void smelt__flight_land(struct smelt__flights *flights, struct smelt__flight *flight,
                        smelt_status status, void *result);
void smelt__flight_leave(struct smelt__flights *flights, struct smelt__flight *flight);

#endif
