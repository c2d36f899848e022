"""How a study is carried out: its engine, its worker processes, and what follows when all searches are done."""
