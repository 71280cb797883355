int a;
int b; /* café */
