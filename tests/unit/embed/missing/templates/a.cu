//@use part/there.cuh
//@use part/gone.cuh
int a;
