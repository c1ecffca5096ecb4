"""The values of the facts in ``as2:facts``, and the parts from which the names of its entities are made."""

VALUES = {
    "product": (
        *("brass door handles", "glass marbles", "pocket barometers", "wooden toy soldiers", "tin whistles"),
        *("oil lamps", "garden gates", "weather vanes", "felt slippers", "fishing nets", "chess pieces"),
        *("copper kettles", "rocking chairs", "picture frames", "sailcloth hammocks", "music boxes"),
        *("bicycle bells", "wax candles", "leather satchels", "mousetraps", "spectacle cases", "ladders"),
        *("globes for schools", "cuckoo clocks", "paper fans", "ice skates", "beehives", "feather quills"),
        *("walking sticks", "porcelain buttons", "rubber boots", "kitchen scales", "bird cages", "wheelbarrows"),
    ),
    "occupation": (
        *("glassblower", "lighthouse keeper", "beekeeper", "piano tuner", "mapmaker", "chimney sweep", "baker"),
        *("ferryman's clerk", "bookbinder", "organ builder", "umbrella mender", "cheese inspector", "milliner"),
        *("stonemason", "postal courier", "actor", "astronomer", "dentist", "tailor", "schoolteacher", "cooper"),
        *("locksmith", "interpreter", "basket weaver", "judge", "gardener", "typesetter", "engraver", "juggler"),
        *("veterinary surgeon", "orchestra conductor", "ropemaker", "tram driver", "illustrator", "pharmacist"),
    ),
    "food": (
        *("fallen pears", "water snails", "beech nuts", "pond weeds", "green beetles", "clover flowers"),
        *("pine seeds", "bulrush roots", "wild raspberries", "moth eggs", "mushroom caps", "acorns", "mayflies"),
        *("earthworms", "sour cherries", "willow buds", "river shrimps", "sunflower seeds", "rose hips"),
        *("thistle heads", "chestnut shells", "fern tips", "dandelion leaves", "tadpoles", "elderberries"),
        *("freshwater mussels", "bean pods", "lily bulbs", "grasshoppers", "ivy berries", "crab apples"),
    ),
    "home": (
        *("hollow lime trees", "sea caves", "dry-stone walls", "reed beds", "disused chimneys", "sand dunes"),
        *("peat bogs", "cedar forests", "mountain meadows", "abandoned quarries", "flooded gravel pits"),
        *("thick bramble hedges", "old vineyards", "birch woods", "salt marshes", "church attics", "rocky islets"),
        *("bamboo thickets", "cherry orchards", "steep river banks", "limestone caverns", "ruined mills"),
        *("heather moors", "mangrove swamps", "warm haystacks", "high glaciers", "deep ravines", "cork oak groves"),
    ),
    "speciality": (
        *("blue cheeses", "smoked eel pies", "silk kites", "pear cakes", "brass trumpets", "striped umbrellas"),
        *("honey biscuits", "carved wooden spoons", "rose jams", "liquorice sticks", "marionettes", "pickled walnuts"),
        *("tulip bulbs", "sugar sculptures", "lace curtains", "barrel organs", "oyster soups", "almond sweets"),
        *("painted eggs", "giant pumpkins", "mosaic tables", "straw hats", "ginger wines", "paper theatres"),
        *("rainbow trout", "hazelnut pastries", "woven carpets", "herb vinegars", "cider presses", "glass bells"),
    ),
    "subject": (
        *("a piano tuner lost at sea", "two rival beekeepers", "a lighthouse that refuses to shine"),
        *("an orphan who inherits a railway", "a detective with hay fever", "three sisters and a stolen recipe"),
        *("a judge who cannot decide", "the last postman of the islands", "a general who takes up knitting"),
        *("an elephant in a small apartment", "a village without any clocks", "twins who swap their lives"),
        *("a princess who becomes a plumber", "an honest pickpocket", "a couple who cross a lake by bathtub"),
        *("two bakers with a grudge", "a ghost who is afraid of the dark", "an astronomer and a talking goat"),
        *("a lost letter and its eleven readers", "a mountain that moves by night", "a retired magician"),
        *("a choir of thieves", "a gardener who falls in love with a statue", "an inventor and a patient cow"),
        *("the keeper of a haunted museum", "a boy who collects shadows", "a bridge that leads nowhere"),
        *("a widow who sails around a continent", "a town besieged by geese", "an unlucky treasure hunter"),
    ),
    "material": (
        *("pear wood", "hammered copper", "goatskin", "polished bamboo", "baked clay", "silver birch", "horn"),
        *("thin brass", "smoked glass", "cherry wood", "walnut", "dried gourd", "pewter", "olive wood", "cork"),
        *("hollow reed", "sheet tin", "ebony", "black slate", "cedar", "green jade", "boiled leather", "ash wood"),
        *("stiff parchment", "porcelain", "whitened bone", "cast bronze", "maple", "oiled silk", "lime wood"),
    ),
    "reason": (
        *("the end of a long siege", "the digging of the first well", "the rescue of a drifting ferry"),
        *("the escape of a hundred geese", "the day the fog lifted", "a victory over the tax collector"),
        *("the invention of the local dumpling", "the wedding of two feuding families", "the great cheese fire"),
        *("the arrival of the first piano", "the return of a stolen bell", "the taming of a bear"),
        *("a treaty signed in a hayloft", "the pardon of an innocent baker", "the finding of a lost child"),
        *("the opening of the mountain pass", "the capture of a famous smuggler", "the first flight of a balloon"),
        *("a shipwreck without any victims", "the birth of triplets in the bell tower", "the draining of the marsh"),
        *("the visit of a shy queen", "a duel fought with ladles", "the planting of the old lime tree"),
        *("the night the river ran backwards", "the cure of a plague of moths", "the lighting of the first lamp"),
        *("a quarrel settled by a donkey", "the defeat of a pirate fleet", "the saving of the winter grain"),
    ),
    "month": (
        *("January", "February", "March", "April", "May", "June", "July"),
        *("August", "September", "October", "November", "December"),
    ),
}

# Each region of the invented world: beginnings of names, the endings of places, rivers and surnames, and first names.
REGIONS = (
    {
        "stems": ("Skel", "Hald", "Thrim", "Vorn", "Brask", "Dreng", "Ulv", "Gryt", "Styr", "Falk", "Rusk", "Njoll"),
        "towns": ("vik", "holt", "sund", "garde", "nessa", "fjord", "stad", "heim"),
        "rivers": ("a", "elva", "un", "ina"),
        "surnames": ("lund", "borg", "rikson", "quist", "sten", "mark"),
        "firsts": ("Askel", "Runa", "Torvi", "Sigga", "Heldor", "Eilo", "Yrsa", "Brandt", "Solva", "Ketil", "Marit"),
    },
    {
        "stems": (
            *("Bramble", "Thistle", "Muddle", "Tumble", "Pock", "Tattle"),
            *("Fennel", "Crumble", "Marrow", "Hob", "Quill", "Dapple"),
        ),
        "towns": ("combe", "wick", "thorpe", "stead", "mere", "den", "hythe", "bury"),
        "rivers": ("brook", "water", "burn", "rill"),
        "surnames": ("worth", "bottom", "wright", "shaw", "croft", "ridge"),
        "firsts": ("Odwin", "Tamsy", "Barnaby", "Hettie", "Clovis", "Merry", "Ambrose", "Pim", "Dorcas", "Wilfa"),
    },
    {
        "stems": ("Cora", "Belli", "Tori", "Mala", "Vesti", "Lumi", "Sari", "Pela", "Orsi", "Gala", "Bruni", "Feri"),
        "towns": ("vento", "mondo", "dora", "lupa", "sano", "tarra", "penna", "zola"),
        "rivers": ("lia", "ta", "sco", "via"),
        "surnames": ("netti", "vello", "carro", "bassi", "donna", "mezza"),
        "firsts": ("Livio", "Amarina", "Pascolo", "Renza", "Tiberia", "Ottone", "Filippa", "Zeno", "Carola", "Ugo"),
    },
    {
        "stems": ("Zel", "Morv", "Dob", "Vish", "Kras", "Tolm", "Brez", "Glub", "Radv", "Osk", "Yar", "Plov"),
        "towns": ("omir", "enka", "ovets", "anica", "itsa", "ograd", "inor", "esti"),
        "rivers": ("ava", "ysh", "ora", "enna"),
        "surnames": ("ovic", "enska", "arin", "anko", "imov", "elja"),
        "firsts": ("Mirko", "Danilka", "Vesela", "Orest", "Ludmira", "Bogdal", "Zorana", "Stasio", "Nadezh", "Ilko"),
    },
)

# The patterns by which companies, buildings, fairs and villages are named after a place.
PLACE_NAMES = {
    "company": (
        *("the {} Company", "the {} Workshop", "the {} Manufactory", "the {} Cooperative"),
        *("the {} Partnership", "the {} Trading House"),
    ),
    "bridge": (
        *("the {} Bridge", "the {} Footbridge", "the {} Viaduct", "the {} Crossing"),
        *("the Old {} Causeway", "the {} Pier Bridge"),
    ),
    "tower": (
        *("the {} Tower", "the {} Belfry", "the {} Lighthouse", "the {} Watchtower"),
        *("the {} Beacon", "the {} Campanile"),
    ),
    "festival": (
        *("the {} Fair", "the {} Feast", "the {} Pageant", "the {} Procession", "the {} Gathering"),
        *("the {} Jubilee", "the {} Carnival"),
    ),
    "town": (
        *("Upper {}", "Lower {}", "Great {}", "Little {}", "{} Corner", "{} Quay", "{} Market"),
        *("Saint {}", "New {}", "{} Hill"),
    ),
}

SHIP_NAMES = (
    (
        *("Patient", "Stubborn", "Humble", "Salt", "Laughing", "Drowsy", "Amber", "Cheerful", "Modest", "Winter"),
        *("Whistling", "Pewter", "Curious", "Barefoot", "Grateful", "Tuesday", "Crimson", "Solemn"),
    ),
    (
        *("Heron", "Otter", "Thistle", "Magpie", "Fiddler", "Cormorant", "Bramble", "Sparrow", "Badger", "Lantern"),
        *("Walrus", "Teacup", "Miller", "Pelican", "Hedgehog", "Minstrel", "Turnip", "Cygnet"),
    ),
)

BOOK_TITLES = (
    (
        *("Reluctant", "Borrowed", "Marmalade", "Salted", "Thirteenth", "Sleepless", "Damp", "Apologetic"),
        *("Woollen", "Misplaced", "Cinnamon", "Unfinished", "Impatient", "Ticklish", "Second-Best", "Upside-Down"),
        *("Forgetful", "Midnight"),
    ),
    (
        *("Umbrella", "Ladder", "Teapot", "Almanac", "Staircase", "Weathercock", "Kettle", "Cartographer"),
        *("Accordion", "Wardrobe", "Haystack", "Gramophone", "Postmistress", "Anchor", "Pudding", "Chandelier"),
        *("Ferryboat", "Bagpipe"),
    ),
)

SPECIES_NAMES = (
    (
        *("tufted", "lesser", "striped", "marsh", "blue-eared", "dwarf", "spotted", "golden", "woolly", "giant"),
        *("crested", "dusky", "long-tailed", "whiskered"),
    ),
    (
        *("plimrel", "tarnock", "gruffkin", "ombrel", "wickander", "snedlet", "moppin", "quillock", "bramlet"),
        *("dodrel", "fennock", "tibbander", "grimlet", "hushkin", "marlock", "nibrel", "pobbin", "rusket"),
        *("sorrelkin", "tussock-mouse", "umblet", "vorrel", "wimmock", "yarrel", "zibbin", "burrowkin"),
        *("clovander", "dimmock", "ebbrel", "flittermop"),
    ),
    # These are used only in worlds where the families above are too small.
    ("gravelock", "puddermole", "threnkin", "loobrel", "hazzock", "wendrake"),
)

INSTRUMENT_NAMES = (
    (
        *("bass", "lap", "pocket", "double", "alpine", "court", "shepherd's", "fireside", "harbour", "silent"),
        *("crooked", "tenor"),
    ),
    (
        *("drumelin", "lutaphone", "harmoreel", "bombandra", "trillicorn", "fifelot", "cymbandra", "octobel"),
        *("viomandre", "zithonette", "hornello", "tambourel", "quaverine", "plunkett", "dulciphon", "reedola"),
        *("bellonium", "strumba", "warblin", "gongolet", "pipodeon", "tremolute", "chimandra", "hummerel"),
        *("twangolin", "clarabin", "flutonel", "bassarine", "serpandeon", "timbrello"),
    ),
    ("marimbel", "ocarello", "psaltrine", "rebeccone", "sistrandel", "kazoodle"),
)
