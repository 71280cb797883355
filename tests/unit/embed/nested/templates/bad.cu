//@if 1
//@for i in 0..2
int a_$i;
//@end
